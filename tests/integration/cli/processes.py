"""Watching a command and everything it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TAG = "KPROD_TEST_FAMILY"


class Family:
    """The processes that descend from one command: found by a mark in their environment."""

    def __init__(self, *arguments: str, module: str = "kprod") -> None:
        self._mark = uuid.uuid4().hex
        self._scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.command = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {TAG: self._mark, "TMPDIR": self._scratch.name},
        )
        assert self.command.stdin is not None
        assert self.command.stdout is not None
        assert self.command.stderr is not None
        self.stdin, self.stdout = self.command.stdin, self.command.stdout
        self.stderr = self.command.stderr

    def members(self) -> list[int]:
        wanted = f"{TAG}={self._mark}".encode()
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and wanted in _environment(entry)
        ]

    def end(self) -> None:
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)
        self.command.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self._scratch.cleanup()  # what a killed command could not remove itself


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """In the block, started commands inherit an ignored SIGINT, as after ``trap '' INT``."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def family(*arguments: str, module: str = "kprod") -> Iterator[Family]:
    """``python -m kprod``, or another module, with these arguments, for the block."""
    found = Family(*arguments, module=module)
    try:
        yield found
    finally:
        found.end()


def _environment(process: Path) -> bytes:
    try:
        return process.joinpath("environ").read_bytes()
    except OSError:  # it ended, or is someone else's
        return b""
