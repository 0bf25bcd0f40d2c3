"""A child process together with everything it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LOOK_EVERY = 0.05  # seconds


class ChildSession:
    """A program in a session of its own, so that nothing it starts can be left behind.

    A session holds the child's children too, whatever process groups they make for themselves
    (Spark's Python daemon makes one). Its standard input is a pipe that closes when this process
    ends, its output goes to ``log``. Thread: one.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is the session's too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the program runs; negative when a signal ended it."""
        return self._process.poll()

    def output(self) -> str:
        """What the program has printed so far."""
        return self._log.read_text(errors="replace")

    def stop(self, patience: float) -> None:
        """End every process of the session: ask first, and after ``patience`` seconds kill."""
        self._signal(signal.SIGTERM)
        if not self.wait_until_empty(patience):
            self._signal(signal.SIGKILL)
            self.wait_until_empty(patience)
        self.let_go()

    def let_go(self) -> None:
        """Close our end of the pipe."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the whole session to end; False if it did not."""
        deadline = time.monotonic() + timeout
        while self._process.poll() is None or self._members():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY)
        return True

    def _signal(self, number: int) -> None:
        members = self._members()  # before the child can end, and its number be given away
        self._process.send_signal(number)
        for pid in members:
            if pid != self.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _members(self) -> list[int]:
        """The live processes of the session, where the system can list processes."""
        entries = PROC.iterdir() if PROC.is_dir() else ()
        return [int(e.name) for e in entries if e.name.isdigit() and self._is_member(e)]

    def _is_member(self, entry: Path) -> bool:
        try:
            stat = entry.joinpath("stat").read_text()
        except OSError:  # it ended while we looked
            return False
        # pid (name) state parent group session ...; the name may hold spaces and parentheses.
        state, _parent, _group, session = stat.rpartition(")")[2].split()[:4]
        return int(session) == self.pid and state != "Z"
