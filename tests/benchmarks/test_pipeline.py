"""The pipeline benchmark: its cases run."""

from __future__ import annotations

import pytest

from benchmarks.kernels.kernel import Kernel
from benchmarks.kernels.kernels import kernels
from benchmarks.measured_process import TurnFailed
from benchmarks.pipeline.case import EMBEDDED, Case

pytestmark = pytest.mark.full


@pytest.mark.parametrize("broker", ["counting sink", EMBEDDED])
def test_a_case_reports_its_measurements(broker: str) -> None:
    case = Case("codec", "lz4", 900, ("--compression", "lz4", "--keys", "5"), broker=broker)
    measured = case.take()
    assert (measured["records"], measured["failed"]) == (900, 0)
    assert measured["p50_ms"] > 0


def test_a_case_with_a_wrong_option_names_the_option() -> None:
    with pytest.raises(TurnFailed, match="lingr_ms"):
        Case("option", "wrong", 10, ("-X", "lingr_ms=1")).take()


@pytest.mark.parametrize(
    "kernel",
    [kernel for kernel in kernels() if not kernel.name.startswith("send")],
    ids=lambda kernel: kernel.name,
)
def test_a_kernel_can_run_twice(kernel: Kernel) -> None:
    for _ in range(2):
        kernel.prepare()()
