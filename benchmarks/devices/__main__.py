"""What is a device worth? Two checkouts, one with it and one without, in turns: A B B A A B ...

    python -m benchmarks.devices "GC untracking" --with . --without ../other --measure hasty

Both folders hold built packages of the same Python; this one has the receiver and the turns. The
result joins those of other devices in ``results/devices.json``. A device is worth its lines when
one of its figures gains at least 5 %, and does so in the middle half of the pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.devices.measures import FIGURES, MEASURES
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import read_result, write_result
from benchmarks.rivals.comparison import take
from benchmarks.spread import significant, spread_of

NAME = "devices"
ENOUGH = 0.05
PAIRS = 10


def main() -> int:
    """Measure what the command line asks for, and store it; the exit code."""
    options = _parser().parse_args()
    origin = provenance()
    taken = {name: _pairs(name, options) for name in options.measure}
    measured = {
        "command": command_line("benchmarks.devices"),
        **origin,
        "pairs": options.pairs,
        "measures": {name: _compared(name, pairs) for name, pairs in taken.items()},
    }
    for name, one in measured["measures"].items():
        for figure, ratio in one["ratios"].items():
            print(f"{options.device}, {name}: {figure} with / without {_told(ratio)}")
    _store(options.device, measured, origin)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices")
    parser.add_argument("device")
    parser.add_argument("--with", dest="with_it", type=Path, required=True)
    parser.add_argument("--without", type=Path, required=True)
    parser.add_argument("--measure", nargs="+", choices=MEASURES, required=True)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    return parser


def _pairs(name: str, options: argparse.Namespace) -> list[dict[str, dict[str, Any]]]:
    """One mapping a pair: the figures with the device and without it."""
    turn = MEASURES[name]
    folders = {"with": options.with_it.resolve(), "without": options.without.resolve()}
    pairs = []
    for number in range(options.pairs):
        order = list(folders) if number % 2 == 0 else list(folders)[::-1]
        pairs.append({side: take(replace(turn), folders[side]) for side in order})
        for side, found in pairs[-1].items():
            if missing := set(FIGURES[turn.measure]) - found.keys():
                sys.exit(f"the benchmarks in {folders[side]} do not measure {', '.join(missing)}")
        print(f"{name}: pair {number + 1} of {options.pairs}", file=sys.stderr)
    return pairs


def _compared(name: str, pairs: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    figures = FIGURES[MEASURES[name].measure]
    sides = {
        side: {
            figure: spread_of([pair[side][figure] for pair in pairs]).as_json()
            for figure in figures
        }
        for side in ("with", "without")
    }
    ratios = {
        figure: spread_of([pair["with"][figure] / pair["without"][figure] for pair in pairs])
        for figure in figures
    }
    rounds = [
        {side: {figure: significant(pair[side][figure]) for figure in figures} for side in pair}
        for pair in pairs
    ]
    return {
        "turn": MEASURES[name].as_json(),
        "ratios": {figure: ratio.as_json() for figure, ratio in ratios.items()},
        "worth_it": any(_gains(figure, ratio.as_json()) for figure, ratio in ratios.items()),
        **sides,
        "rounds": rounds,
    }


def _gains(figure: str, ratio: Mapping[str, float]) -> bool:
    if figure == "records_per_second":
        return ratio["median"] >= 1 + ENOUGH and ratio["q1"] > 1
    return ratio["median"] <= 1 - ENOUGH and ratio["q3"] < 1


def _told(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.3f} ({ratio['q1']:.3f} to {ratio['q3']:.3f})"


def _store(device: str, measured: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
    """Measures of a device that were taken before stay; those taken again are replaced."""
    try:
        figures = read_result(NAME)["figures"]
    except FileNotFoundError:
        figures = {}
    former = figures.get(device, {}).get("measures", {})
    figures[device] = {**measured, "measures": {**former, **measured["measures"]}}
    write_result(
        NAME,
        question="What does each device gain: figures with it, and without it, in turns?",
        command="python -m benchmarks.devices DEVICE ..., as stored with each device",
        origin=origin,
        settings={"enough": ENOUGH},
        figures=figures,
    )


if __name__ == "__main__":
    sys.exit(main())
