"""The same work on several sides, in turns: A B C A B C ..., each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rivals.turn import Turn
from benchmarks.sink.sink_process import SinkProcess
from benchmarks.spread import Spread, spread_of

ROOT = Path(__file__).parents[2]
TURN_SECONDS = 180.0
LAST_WORDS = 400
QUIET = {"OPENBLAS_NUM_THREADS": "1"}
"""pyarrow loads numpy, whose threads would spin for a while on the cores that are measured."""

COUNTED = ("records", "batches", "requests", "batch_bytes", "batches_by_codec")

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One question, and the turns by name of the side."""

    name: str
    question: str
    sides: dict[str, Turn]


@dataclass(slots=True)
class Taken:
    """What the turns of a comparison measured: per side one mapping a round, None: it failed."""

    rounds: dict[str, list[dict[str, Any] | None]]
    problems: list[str] = field(default_factory=list)

    def spreads(self, side: str) -> dict[str, Spread]:
        """Each figure of a side over the rounds that went well; empty when none did."""
        taken = [measured for measured in self.rounds[side] if measured is not None]
        names = [name for name, value in taken[0].items() if _is_number(value)] if taken else []
        return {name: spread_of([measured[name] for measured in taken]) for name in names}

    def ratios(self, figure: str, side: str, other: str) -> Sequence[float]:
        """``side`` against ``other``, round by round: what both suffered from falls out.

        None when one of them was not there.
        """
        pairs = zip(self.rounds.get(side, ()), self.rounds.get(other, ()), strict=False)
        return [a[figure] / b[figure] for a, b in pairs if a and b and b.get(figure)]


def compare(comparison: Comparison, rounds: int, say: Say) -> Taken:
    """Run it. A turn that fails is told, noted, and left out; the others go on."""
    taken = Taken({side: [] for side in comparison.sides})
    for number in range(1, rounds + 1):
        for side, turn in comparison.sides.items():
            say(f"{comparison.name}: round {number} of {rounds}, {side}")
            try:
                taken.rounds[side].append(take(turn))
            except (TurnFailed, RuntimeError, OSError) as failure:
                taken.rounds[side].append(None)
                taken.problems.append(f"round {number}, {side}: {failure}")
                say(f"  failed: {failure}")
    return taken


class TurnFailed(Exception):
    """A turn that has no figures, and why."""


def take(turn: Turn) -> dict[str, Any]:
    """One turn against a sink of its own; its figures, and ``sink``: what the sink has counted.

    Raises TurnFailed when the client fails, takes too long, or the sink did not get every record.
    """
    with SinkProcess(turn.partitions) as sink:
        measured = _in_a_process(turn, sink.bootstrap_servers)
        counts = sink.counts()
    if counts["records"] != turn.expected_records or counts["malformed"]:
        raise TurnFailed(f"sent {turn.expected_records} records, but the sink counted {counts}")
    if counts["batches"]:
        measured["records_per_batch"] = counts["records"] / counts["batches"]
    return measured | {"sink": {name: counts[name] for name in COUNTED}}


def _in_a_process(turn: Turn, bootstrap_servers: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.rivals.turn"]
    command += [json.dumps(turn.as_json()), bootstrap_servers]
    try:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            timeout=TURN_SECONDS,
            env=os.environ | QUIET,
        )
    except subprocess.TimeoutExpired:
        raise TurnFailed(f"no end after {TURN_SECONDS:.0f} s") from None
    if ran.returncode:
        raise TurnFailed(ran.stderr.strip()[-LAST_WORDS:] or f"exit code {ran.returncode}")
    try:
        measured: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise TurnFailed(f"no figures in {ran.stdout[-LAST_WORDS:]!r}") from None
    return measured


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
