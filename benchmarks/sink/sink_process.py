"""A counting sink in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class SinkProcess:
    """A sink for the block. Thread: one."""

    def __init__(
        self, partitions: int = 6, tls: str | None = None, advertised: int | None = None
    ) -> None:
        """Start it; every topic has ``partitions`` partitions.

        ``tls``: a PEM file, for TLS. ``advertised``: the port that clients are told to come to.
        """
        command = [sys.executable, "-m", "benchmarks.sink.counting_sink"]
        command += ["--partitions", str(partitions)]
        command += [] if tls is None else ["--tls", tls]
        command += [] if advertised is None else ["--advertised", str(advertised)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self.bootstrap_servers = self._line()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    def counts(self) -> dict[str, Any]:
        """What it has received since it began: see ``counting_sink.Counts``."""
        assert self._process.stdin is not None
        self._process.stdin.write("counts\n")
        self._process.stdin.flush()
        counts: dict[str, Any] = json.loads(self._line())
        return counts

    def cpu_seconds(self) -> float:
        """The CPU time it has taken so far, to a hundredth of a second. Linux only."""
        after_name = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
        user, system = after_name.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the sink ended with exit code {self._process.wait()}")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
