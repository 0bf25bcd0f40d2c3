"""One client's turn, as ``benchmarks.rivals.turn``, with samples taken while it is measured.

    python -m benchmarks.profiles.profiled_turn '{"client": "kprod send", ...}' 127.0.0.1:41234

prints a line of JSON: what was measured, and the CPU time per record by thread and kind of work.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.profiles.kinds import KINDS, kind
from benchmarks.profiles.sampling import Sampling, samples
from benchmarks.rivals.turn import Turn, run_turn
from kprod.cli.figures import CostMeter, ProcessCost

CALLER, OTHERS = "caller", "sender"
"""The thread that sends, and those that the client has; of kprod it is one."""


class SampledMeter(CostMeter):
    """A meter whose time is also sampled."""

    def __init__(self, file: Path) -> None:
        self._sampling = Sampling(file)
        super().__init__()

    def read(self) -> ProcessCost:
        """See CostMeter; ends the sampling."""
        cost = super().read()
        self._sampling.stop()
        return cost


def profiled(turn: Turn, bootstrap_servers: str) -> dict[str, Any]:
    """Take the turn in this process. Raises NoProfiler."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "perf.data"
        measured = run_turn(turn, bootstrap_servers, partial(SampledMeter, file))
        found = samples(file)
    return measured | {"samples": shares(found, os.getpid())}


def shares(found: Iterable[tuple[int, str]], caller: int) -> dict[str, dict[str, float]]:
    """What part of all samples each kind of work has, by thread: together they are 1."""
    counts = Counter(
        (CALLER if thread == caller else OTHERS, kind(library)) for thread, library in found
    )
    total = max(counts.total(), 1)
    return {
        thread: {one: counts[thread, one] / total for one in KINDS} for thread in (CALLER, OTHERS)
    }


if __name__ == "__main__":
    print(json.dumps(profiled(Turn(**json.loads(sys.argv[1])), sys.argv[2])))
