"""Spark sessions in processes of their own, which can be killed and are made again."""

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
from tests.spark.exactly_once_kills.judge import Violation
from tests.spark.exactly_once_kills.planted import VARIABLE

DRIVER = """
from tests.spark.exactly_once_kills.jobs import main
main()
"""
DAEMON = "tests.spark.exactly_once_kills.warm_daemon"
JOB_SECONDS = 120.0
"""Of a job that has a core: where many processes wait for one, less of a second counts."""
CORES = os.cpu_count() or 1
SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
}


class Driver:
    """A driver that writes one job after the other; what it says of them is read meanwhile."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._killed = False
        self.pid = self._process.pid
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ready = threading.Event()  # set at its end, too
        self._began = False
        self._errors: deque[str] = deque(maxlen=60)
        self._readers = [threading.Thread(target=t) for t in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._said.put(json.loads(line))
            elif line.startswith("ready"):
                self._began = True
                self._ready.set()
        self._ready.set()

    def _read_errors(self) -> None:
        """A pipe that nobody empties would stop the driver."""
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def await_ready(self) -> None:
        """AssertionError, with what it said, when it has ended instead."""
        assert self._ready.wait(300)
        if not self._began:
            self._process.wait(60)
            self._readers[1].join(60)
        assert self._began, "".join(self._errors)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def tell(self, job: dict[str, Any]) -> None:
        """Give it a job, as a line of JSON on its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def said(self) -> dict[str, Any] | None:
        """How a job has ended, if one has since the last call."""
        with suppress(queue.Empty):
            return self._said.get_nowait()
        return None

    def kill(self) -> None:
        """End it, its virtual machine and its executors at once. A second call does nothing."""
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
    """A Spark session in a process of its own, made again after it was killed.

    ``planted`` names a wrong version that its tasks and drivers write by.
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
        """The one that runs; another one if it was killed."""
        if self._driver is None or not self._driver.runs:
            self.kill()
            self._driver, self._next = self._next or self._started(), None
            self._driver.await_ready()
        if self._is_ahead and self._next is None:
            self._next = self._started()
        return self._driver

    def keep_ahead(self, ahead: bool) -> None:
        """Start the driver that follows a killed one before that is killed: half of its cost."""
        self._is_ahead = ahead

    def _started(self) -> Driver:
        return Driver(program(DRIVER, json.dumps(self._given)))

    def close(self) -> None:
        self.kill()
        if self._next is not None:
            self._next.kill()

    def kill(self) -> None:
        """End the driver, and all that belongs to it, at once."""
        if self._driver is not None:
            self._driver.kill()

    def cancel(self, *, stream: bool) -> None:
        """What a user does who wants the job to end: Ctrl-C, or ``query.stop()`` of its stream."""
        os.kill(self.driver.pid, signal.SIGUSR1 if stream else signal.SIGINT)

    def await_told(self, driver: Driver) -> dict[str, Any] | None:
        """How the job of this driver has ended; None if the driver has."""
        waited, before = 0.0, time.monotonic()
        while driver.runs:
            if (told := driver.said()) is not None:
                return told
            before, passed = time.monotonic(), time.monotonic() - before
            waited += passed * min(1.0, CORES / max(os.getloadavg()[0], 1.0))
            if waited > JOB_SECONDS:
                self.kill()
                raise Violation(f"the job has not ended after {JOB_SECONDS:.0f} s")
            time.sleep(0.02)
        return None

    def lose_shuffles(self) -> int:
        """Remove the files of all shuffles: tasks that have not read theirs cannot any more."""
        lost = 0
        for file in self._folder.rglob("shuffle_*"):
            with suppress(OSError):
                file.unlink()
                lost += 1
        return lost
