"""The embedded broker in a process of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kprod.cli.child_session import ChildSession
from kprod.cli.demo.failure import DemoFailure

LISTENING = "listening on "
START_SECONDS = 30.0
STOP_SECONDS = 10.0


class BrokerProcess:
    """``kprod broker`` on a free port. Thread: one."""

    def __init__(self, data_dir: Path, log: Path, *, outlives_us: bool = False) -> None:
        """Start it; with ``outlives_us`` it goes on when this process ends."""
        command = [sys.executable, "-m", "kprod.cli", "broker", "--port", "0"]
        command += ["--data-dir", str(data_dir)]
        command += [] if outlives_us else ["--until-stdin-closes"]
        self._session = ChildSession(command, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._session.pid

    def address(self) -> str:
        """Wait until it listens: ``host:port``. Raises DemoFailure when it does not."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._session.exit_code is None:
            first, newline, _rest = self._session.output().partition("\n")
            if newline and first.startswith(LISTENING):
                return first.removeprefix(LISTENING)
            time.sleep(0.02)
        raise DemoFailure(f"the embedded broker did not start:\n{self._session.output()}")

    def stop(self) -> None:
        """Stop it and wait until it is gone."""
        self._session.stop(STOP_SECONDS)
