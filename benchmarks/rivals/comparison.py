"""The same work on several sides, in turns: A B C A B C ..., each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measured_process import ROOT, TurnFailed, figures_of
from benchmarks.rivals.turn import Turn
from benchmarks.sink.sink_process import SinkProcess
from benchmarks.spread import Spread, spread_of

COUNTED = ("records", "batches", "requests", "batch_bytes", "batches_by_codec")

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One question, and the turns by name of the side.

    ``repeats`` is how many rounds it takes for each round of the run: more where the turns of one
    side lie far apart, for what a median is worth grows with their number only.
    """

    name: str
    question: str
    sides: dict[str, Turn]
    repeats: int = 1


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
    """Run it, ``rounds`` times as often as it repeats.

    A turn that fails is told, noted, and left out; the others go on.
    """
    taken = Taken({side: [] for side in comparison.sides})
    rounds *= comparison.repeats
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


def take(turn: Turn, folder: Path = ROOT) -> dict[str, Any]:
    """One turn against a sink of its own; its figures, and ``sink``: what the sink has counted.

    ``folder`` is the checkout whose kprod takes the turn.

    Raises TurnFailed when the client fails, takes too long, or the sink did not get every record.
    """
    with ExitStack() as stack:
        if turn.busy:
            stack.enter_context(busy_cores())
        pems = _pems(stack) if turn.tls else None
        sink = stack.enter_context(SinkProcess(turn.partitions, pems and pems[0]))
        measured = _in_a_process(turn, folder, sink.bootstrap_servers, *(pems or ())[1:])
        counts = sink.counts()
    if counts["records"] != turn.expected_records or counts["malformed"]:
        raise TurnFailed(f"sent {turn.expected_records} records, but the sink counted {counts}")
    if counts["batches"]:
        measured["records_per_batch"] = counts["records"] / counts["batches"]
    return measured | {"sink": {name: counts[name] for name in COUNTED}}


def _in_a_process(turn: Turn, folder: Path, *places: str) -> dict[str, Any]:
    # An older checkout, to compare with, has no word for these, and needs none for other turns.
    late = ("tls", "defaults")
    told = replace(turn, busy=False).as_json()
    del told["busy"]  # the caller's affair
    described = json.dumps({n: v for n, v in told.items() if n not in late or v})
    module = "benchmarks.rivals.turn"
    return figures_of([sys.executable, "-m", module, described, *places], folder)


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process for each core that computes without end, for the block."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def _pems(stack: ExitStack) -> tuple[str, str]:
    """Files of a server's certificate and key, and of the authority that vouches for it."""
    import trustme

    folder = Path(stack.enter_context(TemporaryDirectory()))
    server, authority = folder / "server.pem", folder / "ca.pem"
    made = trustme.CA()
    made.cert_pem.write_to_path(str(authority))
    issued = made.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(server))
    return str(server), str(authority)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
