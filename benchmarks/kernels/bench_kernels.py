"""How many nanoseconds does each compiled operation take?

    make bench ARGS="-k append"

A round is a thousand operations, or a whole batch; the median of many rounds is what to look at.
``extra_info`` has nanoseconds per operation. Preparing a round is not part of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.kernels.kernel import Kernel, Work
from benchmarks.kernels.kernels import kernels

ROUNDS, WARM_UP = 100, 10


@pytest.mark.filterwarnings("default")  # what a producer says when the interpreter ends
@pytest.mark.parametrize("kernel", list(kernels()), ids=lambda kernel: kernel.name)
def test_kernel(benchmark: Any, kernel: Kernel) -> None:
    def prepared() -> tuple[tuple[Work], dict[str, Any]]:
        return (kernel.prepare(),), {}

    benchmark.pedantic(lambda work: work(), setup=prepared, rounds=ROUNDS, warmup_rounds=WARM_UP)
    if benchmark.stats is not None:  # None when benchmarks are only tried, not timed
        nanoseconds = benchmark.stats["median"] * 1e9 / kernel.operations
        benchmark.extra_info["ns_per_operation"] = round(nanoseconds, 1)
    benchmark.extra_info["question"] = kernel.question
    benchmark.extra_info["operations"] = kernel.operations
