"""Where the CPU time of a record goes, by thread and kind of work.

    python -m benchmarks.profiles                   # stores results/profiles.json
    python -m benchmarks.profiles --rounds 1        # to see that it works

The turns are those of the acceptance run; perf samples them, which slows them down a little: look
at the shares. Exit code 0 when all were sampled, 1 when one was not, 2 without perf.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from rich.console import Console

from benchmarks.measured_process import TurnFailed, figures_of
from benchmarks.profiles.profiled_turn import CALLER, OTHERS
from benchmarks.profiles.sampling import NoProfiler, Sampling
from benchmarks.profiles.tables import profile_table
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.rivals import comparisons as c
from benchmarks.rivals.turn import Turn
from benchmarks.sink.sink_process import SinkProcess
from benchmarks.spread import significant

ROUNDS = 3
PROFILED = (
    ("keyed", c.KPROD),
    ("keyed-1000", c.KPROD),
    ("bulk", c.KPROD_MANY),
    ("bulk", c.KPROD_ARROW),
    ("bulk", c.LOOPBACK),
    ("bulk", c.LOOPBACK_IN_TURNS),
    ("lz4", c.KPROD),
    ("zstd", c.KPROD),
    ("partitions", c.FEW),
    ("partitions", c.MANY),
)
RECEIVER = "receiver"


def main() -> int:
    """Run what the command line asks for; the exit code."""
    described = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=described[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    console = Console(width=None if sys.stdout.isatty() else 150)
    origin = provenance()
    turns = {one.name: one.sides for one in c.comparisons()}
    profiles: dict[str, dict[str, Any]] = {}
    try:
        Sampling.check()
        for comparison, side in PROFILED:
            console.print(f"{comparison}: {side}", style="dim")
            taken = [_take(turns[comparison][side]) for _ in range(rounds)]
            profiles[f"{comparison}: {side}"] = _mean(taken)
    except NoProfiler as reason:
        console.print(str(reason), style="bold")
        return 2
    except TurnFailed as failure:
        console.print(f"not sampled: {failure}", style="bold", markup=False)
        return 1
    console.print(profile_table(profiles))
    file = write_result(
        "profiles",
        question="Where does the CPU time of a record go?",
        command=command_line("benchmarks.profiles"),
        origin=origin,
        settings={"rounds": rounds},
        figures={"profiles": profiles},
    )
    console.print(f"Stored in {os.path.relpath(file)}")
    return 0


def _take(turn: Turn) -> dict[str, Any]:
    """Nanoseconds of CPU time per record, by thread and kind of work, and of wall time."""
    module = "benchmarks.profiles.profiled_turn"
    described = json.dumps(turn.as_json())
    with SinkProcess(turn.partitions) as sink:
        before = sink.cpu_seconds()
        measured = figures_of([sys.executable, "-m", module, described, sink.bootstrap_servers])
        received = sink.cpu_seconds() - before
    nanoseconds = 1000 * measured["cpu_us_per_record"]
    by_kind = {
        thread: {kind: share * nanoseconds for kind, share in measured["samples"][thread].items()}
        for thread in (CALLER, OTHERS)
    }
    by_kind[RECEIVER] = {"system": 1e9 * received / (turn.records + turn.warm_up)}
    return {"wall": {"wall": 1e9 / measured["records_per_second"]}, **by_kind}


def _mean(taken: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(thread: str, kind: str) -> float:
        return significant(sum(one[thread][kind] for one in taken) / len(taken))

    return {
        thread: {kind: mean(thread, kind) for kind in kinds} for thread, kinds in taken[0].items()
    }


if __name__ == "__main__":
    sys.exit(main())
