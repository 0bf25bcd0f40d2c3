"""Spark sessions in separate processes, which can be killed and are replaced."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.spark.driver_process import SETTINGS, program
from tests.spark.exactly_once_kills.checks import Violation
from tests.spark.exactly_once_kills.jobs import VARIABLE

DRIVER = """
from tests.spark.exactly_once_kills.jobs import main
main()
"""
DAEMON = "tests.spark.exactly_once_kills.warm_daemon"
JOB_SECONDS = 120.0
"""With a core for each process; at a higher load more."""
CORES = os.cpu_count() or 1
SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
}


class Driver:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._killed = False
        self.pid = self._process.pid
        self._outcomes: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready = threading.Event()  # also set at its end
        self._began = False
        self._errors: deque[str] = deque(maxlen=60)
        self._readers = [threading.Thread(target=t) for t in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._outcomes.put(json.loads(line))
            elif line.startswith("ready"):
                self._began = True
                self._ready.set()
        self._ready.set()

    def _read_errors(self) -> None:
        """A full pipe would block the driver."""
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def await_ready(self) -> None:
        """Raises AssertionError with its errors if it has ended instead."""
        assert self._ready.wait(300)
        if not self._began:
            self._process.wait(60)
            self._readers[1].join(60)
        assert self._began, "".join(self._errors)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def send_job(self, job: dict[str, Any]) -> None:
        """Give it a job, as a line of JSON on its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def next_outcome(self) -> dict[str, Any] | None:
        """The outcome of a job that ended since the last call."""
        with suppress(queue.Empty):
            return self._outcomes.get_nowait()
        return None

    def kill(self) -> None:
        """Kill it, its JVM and its executors. A second call does nothing."""
        if self._killed:
            return
        self._killed = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


class Session:
    """A Spark session in a separate process, replaced after it was killed.

    ``planted`` names a bug in its tasks and drivers.
    """

    def __init__(self, kind: str, master: str, folder: Path, planted: str | None) -> None:
        self.kind = kind
        self._folder = folder
        settings = {
            **SETTINGS,
            "spark.local.dir": str(folder),
            "spark.python.daemon.module": DAEMON,
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.stage.maxConsecutiveAttempts": "20",
        }
        settings |= SPECULATES if kind == "standalone" else {}
        settings |= {f"spark.executorEnv.{VARIABLE}": planted} if planted else {}
        self._given = {"master": master, "connect": kind == "connect", "settings": settings}
        self._driver: Driver | None = None
        self._next: Driver | None = None
        self._is_ahead = False

    @property
    def driver(self) -> Driver:
        """The running driver; a new one if it was killed."""
        if self._driver is None or not self._driver.runs:
            self.kill()
            self._driver, self._next = self._next or self._started(), None
            self._driver.await_ready()
        if self._is_ahead and self._next is None:
            self._next = self._started()
        return self._driver

    def keep_ahead(self, ahead: bool) -> None:
        """Start the next driver in advance, which saves half of the time."""
        self._is_ahead = ahead

    def _started(self) -> Driver:
        return Driver(program(DRIVER, json.dumps(self._given)))

    def close(self) -> None:
        self.kill()
        if self._next is not None:
            self._next.kill()

    def kill(self) -> None:
        """Kill the driver and all its processes."""
        if self._driver is not None:
            self._driver.kill()

    def cancel(self, *, stream: bool) -> None:
        """Cancel as a user does: by Ctrl-C, or ``query.stop()`` of a stream."""
        os.kill(self.driver.pid, signal.SIGUSR1 if stream else signal.SIGINT)

    def await_outcome(self, driver: Driver) -> dict[str, Any] | None:
        """The outcome of the job of this driver; None if the driver has ended."""
        waited, before = 0.0, time.monotonic()
        while driver.runs:
            if (outcome := driver.next_outcome()) is not None:
                return outcome
            before, passed = time.monotonic(), time.monotonic() - before
            waited += passed * min(1.0, CORES / max(os.getloadavg()[0], 1.0))
            if waited > JOB_SECONDS:
                self.kill()
                raise Violation(f"the job has not ended after {JOB_SECONDS:.0f} s")
            time.sleep(0.02)
        return None

    def lose_shuffles(self) -> int:
        lost = 0
        for file in self._folder.rglob("shuffle_*"):
            with suppress(OSError):
                file.unlink()
                lost += 1
        return lost
