"""The embedded broker as a process that can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Self

from tests.support.frozen import freeze, thaw
from tests.support.ports import HeldPort, await_listener


class BrokerProcess:
    """Starts on a fixed port and data directory; ``kill`` is SIGKILL, ``start`` starts it again.

    ``freeze`` is SIGSTOP: connections stay open without answers until ``thaw``. ``errors`` gets
    stderr.
    """

    def __init__(
        self, data_dir: Path, topics: dict[str, int], errors: IO[str] | None = None
    ) -> None:
        self._held = HeldPort()
        self.port = self._held.number
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "kprod.broker", "--port", str(self.port)]
        self._command += ["--data-dir", str(data_dir)]
        for name, partitions in topics.items():
            self._command += ["--topic", f"{name}:{partitions}"]
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=self._errors
        )
        await_listener(self.port)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)

    def go_on(self) -> None:
        if self._process is None:
            self.start()
        self.thaw()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(20)
            self._process = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # e.g. it was too slow to start
            self._end(signal.SIGKILL)
            self._held.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGTERM)
        self._held.release()
