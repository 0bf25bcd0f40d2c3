"""Child processes of a command, such as the embedded broker, which end with the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kprod.cli.exits import CommandFailure

PROC = Path("/proc")
LOOK_EVERY = 0.05  # seconds


class ChildSession:
    """A program in a session of its own, so that all its children end with it.

    A session includes the child's children, even those in a process group of their own (such as
    Spark's Python daemon). The program's standard input is a pipe that closes when this process
    ends. Its output goes to ``log``. For one thread only.
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
        """The process id, which is also the session id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code. None while the program runs; negative if a signal ended it."""
        return self._process.poll()

    def output(self) -> str:
        """The output of the program so far."""
        return self._log.read_text(errors="replace")

    def stop(self, patience: float) -> None:
        """Terminate every process of the session. After ``patience`` seconds, kill the rest."""
        self._signal(signal.SIGTERM)
        if not self.wait_until_empty(patience):
            self._signal(signal.SIGKILL)
            self.wait_until_empty(patience)
        self.let_go()

    def let_go(self) -> None:
        """Close this end of the pipe to the program."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the whole session to end; return whether it did."""
        deadline = time.monotonic() + timeout
        while self._process.poll() is None or self._members():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY)
        return True

    def _signal(self, number: int) -> None:
        members = self._members()  # before the child can end and its process id be reused
        self._process.send_signal(number)
        for pid in members:
            if pid != self.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _members(self) -> list[int]:
        """The live processes of the session. Empty on systems that cannot list processes."""
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


def when_parent_ends(act: Callable[[], object]) -> None:
    """Call ``act`` in a new thread once standard input is closed.

    Standard input is a pipe from the parent. The system closes the pipe when the parent ends, even
    if a signal kills the parent.
    """
    threading.Thread(target=_wait, args=(act,), name="kprod-lifeline", daemon=True).start()


def _wait(act: Callable[[], object]) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    act()


LISTENING = "listening on "
START_SECONDS = 120.0
"""An idle machine needs one second. If the broker's process ends, the wait ends at once."""
STOP_SECONDS = 10.0


class BrokerProcess:
    """Runs ``kprod broker`` on a free port. For one thread only."""

    def __init__(self, data_dir: Path, log: Path, *, outlives_us: bool = False) -> None:
        """Start the broker. With ``outlives_us``, it keeps running when this process ends.

        Raises ModuleNotFoundError if a package is missing. Its text says what to install.
        """
        import kprod.broker  # noqa: F401 - fails here rather than later in the child

        command = [sys.executable, "-m", "kprod", "broker", "--port", "0"]
        command += ["--data-dir", str(data_dir)]
        command += [] if outlives_us else ["--until-stdin-closes"]
        self._session = ChildSession(command, log)

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._session.pid

    def address(self) -> str:
        """``host:port``, once the broker listens. Raises CommandFailure if it does not start."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._session.exit_code is None:
            first, newline, _rest = self._session.output().partition("\n")
            if newline and first.startswith(LISTENING):
                return first.removeprefix(LISTENING)
            time.sleep(0.02)
        raise CommandFailure(f"the embedded broker did not start:\n{self._session.output()}")

    def cpu_seconds(self) -> float:
        """CPU time of all threads of the broker so far; 0 on systems without /proc."""
        try:
            fields = (PROC / str(self.pid) / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return 0.0
        # man proc_pid_stat: fields 14 and 15; the first two stand before the parenthesis.
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Stop the broker and wait until it has ended."""
        self._session.stop(STOP_SECONDS)


@contextmanager
def embedded_broker(topic: str, partitions: int) -> Iterator[BrokerProcess]:
    """Run a broker with this topic during the block, and remove its data afterwards.

    The broker is a separate process, so that its CPU time does not count as the producer's. Raises
    CommandFailure if it does not start.
    """
    from kprod.admin import create_topic

    with tempfile.TemporaryDirectory(prefix="kprod-", ignore_cleanup_errors=True) as work:
        broker = BrokerProcess(Path(work) / "data", Path(work) / "broker.log")
        try:
            create_topic(broker.address(), topic, partitions)
            yield broker
        finally:
            broker.stop()
