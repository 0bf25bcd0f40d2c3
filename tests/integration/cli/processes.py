"""Runs a command and tracks its descendants."""

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

TAG = "KPROD_TEST_PROCESS_TREE"


class ProcessTree:
    """A command and its descendants, found by a tag in their environment."""

    def __init__(self, *arguments: str, module: str = "kprod") -> None:
        self._tag = uuid.uuid4().hex
        self._scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.command = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {TAG: self._tag, "TMPDIR": self._scratch.name},
        )
        assert self.command.stdin is not None
        assert self.command.stdout is not None
        assert self.command.stderr is not None
        self.stdin, self.stdout = self.command.stdin, self.command.stdout
        self.stderr = self.command.stderr

    def pids(self) -> list[int]:
        expected = f"{TAG}={self._tag}".encode()
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and expected in _environment(entry)
        ]

    def end(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        self.command.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self._scratch.cleanup()  # left behind by a killed command


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """In the block, started commands inherit an ignored SIGINT, as after ``trap '' INT``."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def process_tree(*arguments: str, module: str = "kprod") -> Iterator[ProcessTree]:
    """Run ``python -m kprod`` or another module; kill all of it at the end of the block."""
    found = ProcessTree(*arguments, module=module)
    try:
        yield found
    finally:
        found.end()


def _environment(process: Path) -> bytes:
    try:
        return process.joinpath("environ").read_bytes()
    except OSError:  # it ended, or belongs to another user
        return b""
