"""Does kprod reach what it wants to reach? Every comparison, in turns, and a verdict on each goal.

    python -m benchmarks.acceptance                 # 5 rounds; stores results/acceptance.json
    python -m benchmarks.acceptance --quick         # 2 short rounds; to see that it works
    python -m benchmarks.acceptance --tls           # by TLS 1.3; stores results/tls.json
    python -m benchmarks.acceptance --busy          # all cores busy; stores results/busy.json
    python -m benchmarks.acceptance --faces         # programs of others; stores results/faces.json
    python -m benchmarks.acceptance --avro          # with a registry; stores results/avro.json
    python -m benchmarks.acceptance --defaults      # no option set; stores results/defaults.json

The exit code is 0 when everything was measured, whatever the verdicts are; 1 when a turn failed;
130 after Ctrl-C, which stores nothing. ``python -m benchmarks.report`` makes the report from it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.acceptance.default_goals import DEFAULT_GOALS
from benchmarks.acceptance.goals import AVRO_GOALS, GOALS, Judged, judge
from benchmarks.acceptance.tables import comparison_table, goals_table
from benchmarks.import_cost import import_cost
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.rivals.comparison import Comparison, Taken, compare
from benchmarks.rivals.comparisons import (
    avro_comparisons,
    busy_comparisons,
    comparisons,
    default_comparisons,
    face_comparisons,
    tls_comparisons,
)
from benchmarks.spread import significant, spread_of

QUICK_SCALE, QUICK_ROUNDS, ROUNDS = 0.2, 2, 5
_KNOWN = {
    None: comparisons,
    "defaults": default_comparisons,
    "tls": tls_comparisons,
    "busy": busy_comparisons,
    "faces": face_comparisons,
    "avro": avro_comparisons,
}
"""The comparisons, by where their results are stored if not with the rest."""
WIDTH = 150
"""Columns of a table where there is no terminal to ask."""


def main() -> int:
    """Run what the command line asks for; the exit code."""
    options = _parser().parse_args()
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    special = options.special
    chosen = _KNOWN[special](QUICK_SCALE if options.quick else options.scale)
    if options.only:
        chosen = [one for one in chosen if one.name in options.only]
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    origin = provenance()
    _warn(console, origin)
    goals = {"defaults": DEFAULT_GOALS, "avro": AVRO_GOALS}.get(special, GOALS)
    taken: dict[str, Taken] = {}
    try:
        for one in chosen:
            taken[one.name] = compare(one, rounds, lambda text: console.print(text, style="dim"))
            console.print(comparison_table(one, taken[one.name]))
        imports = {} if options.only or special else import_cost(2 * rounds)
    except KeyboardInterrupt:
        console.print(goals_table(judge(goals, taken, {})))
        console.print("Stopped: nothing is stored.")
        return 130
    judged = judge(goals, taken, imports)
    if options.only or special:
        judged = [one for one in judged if one.spread]
    console.print(goals_table(judged))
    partial = options.quick or options.only or (options.scale != 1 and not special)
    stored = special or "acceptance"
    file = write_result(
        f"{stored}-quick" if partial else stored,
        question="Does kprod reach what it wants to reach, against other clients and the machine?",
        command=command_line("benchmarks.acceptance"),
        origin=origin,
        settings={"rounds": rounds, "scale": QUICK_SCALE if options.quick else options.scale},
        figures=stored_figures(chosen, taken, imports, judged),
    )
    console.print(f"Stored in {os.path.relpath(file)}")
    return _conclude(console, taken)


def _parser() -> argparse.ArgumentParser:
    described = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acceptance", description=described[0]
    )
    names = [one.name for known in _KNOWN.values() for one in known()]
    parser.add_argument("--rounds", type=_positive, help=f"{ROUNDS}, or {QUICK_ROUNDS} if quick")
    parser.add_argument("--quick", action="store_true", help="short turns: not for quoting")
    special = parser.add_mutually_exclusive_group()
    for option, said in (
        ("defaults", "every client with its default options"),
        ("tls", "two clients only, by TLS 1.3"),
        ("busy", "a lone record while other programs keep all cores busy"),
        ("faces", "kprod's faces and their originals"),
        ("avro", "Avro with a schema registry"),
    ):
        asked: dict[str, Any] = {"dest": "special", "action": "store_const", "const": option}
        special.add_argument(f"--{option}", help=said, **asked)
    parser.add_argument("--scale", type=float, default=1.0, help="times the records of every turn")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _warn(console: Console, origin: Mapping[str, Any]) -> None:
    machine, load = origin["machine"], origin["machine"]["load_average"][0]
    console.print(f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, load {load}")
    if load > machine["cores"] / 2:
        console.print("This machine does other work now: believe ratios at most.", style="bold")
    if origin["commit"]["dirty"]:
        console.print("There are changes that are not committed: the result says so.", style="bold")


def stored_figures(
    chosen: Sequence[Comparison],
    taken: Mapping[str, Taken],
    imports: Mapping[str, Any],
    judged: Sequence[Judged],
) -> dict[str, Any]:
    """What is stored of a run."""
    return {
        "goals": [one.as_json() for one in judged],
        "comparisons": {one.name: _comparison(one, taken[one.name]) for one in chosen},
        "import": {
            "import_ms": spread_of(imports["import_ms"]).as_json(),
            "unwanted": imports["unwanted"],
        }
        if imports
        else {},
    }


def _comparison(comparison: Comparison, taken: Taken) -> dict[str, Any]:
    sides = {
        side: {
            "turn": turn.as_json(),
            "figures": {name: one.as_json() for name, one in taken.spreads(side).items()},
            "rounds": [one and _numbers(one) for one in taken.rounds[side]],
            "sink": next((one["sink"] for one in taken.rounds[side] if one), None),
        }
        for side, turn in comparison.sides.items()
    }
    return {"question": comparison.question, "sides": sides, "problems": taken.problems}


def _numbers(measured: Mapping[str, Any]) -> dict[str, float]:
    """A round's figures as they were, but for what the receiver counted."""
    return {name: significant(one) for name, one in measured.items() if name != "sink"}


def _conclude(console: Console, taken: Mapping[str, Taken]) -> int:
    problems = [problem for one in taken.values() for problem in one.problems]
    for problem in problems:
        console.print(f"not measured: {problem}", style="bold", markup=False)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
