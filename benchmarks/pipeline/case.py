"""One measurement of kprod by itself: what ``kprod perf`` is told, and what it talks to."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.measured_process import TurnFailed, figures_of
from benchmarks.sink.sink_process import SinkProcess

WARM_UP = 1_000
SINK, EMBEDDED = "counting sink", "embedded broker"


@dataclass(frozen=True, slots=True)
class Case:
    """``arguments`` are those of ``kprod perf``; ``varied`` is the question the case belongs to."""

    varied: str
    name: str
    records: int
    arguments: tuple[str, ...] = ()
    partitions: int = 6
    broker: str = SINK
    warm_up: int = WARM_UP

    def command(self, bootstrap_servers: str | None) -> list[str]:
        """What to run; without an address it starts an embedded broker."""
        command = [sys.executable, "-m", "kprod", "perf", "--json"]
        command += ["--records", str(self.records), "--warm-up", str(self.warm_up)]
        if bootstrap_servers is None:
            return [*command, "--partitions", str(self.partitions), *self.arguments]
        return [*command, "--bootstrap-servers", bootstrap_servers, *self.arguments]

    def take(self) -> dict[str, Any]:
        """Measure once. Raises TurnFailed when it fails or the sink did not get every record."""
        with ExitStack() as stack:
            if self.broker == EMBEDDED:
                return _run(self.command(None))
            sink = stack.enter_context(SinkProcess(self.partitions))
            measured = _run(self.command(sink.bootstrap_servers))
            counts = sink.counts()
        if counts["records"] != self.records + self.warm_up or counts["malformed"]:
            raise TurnFailed(f"sent {self.records + self.warm_up}, but the sink counted {counts}")
        return measured


def _run(command: list[str]) -> dict[str, Any]:
    measured = figures_of(command)
    latency = measured.pop("latency_ms")
    return measured | {f"{name}_ms": value for name, value in latency.items()}
