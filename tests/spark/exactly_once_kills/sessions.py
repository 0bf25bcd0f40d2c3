"""Spark sessions in processes of their own, which can be killed and are made again."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.spark.class_archive import shared_classes
from tests.spark.driver_process import SETTINGS, program
from tests.spark.exactly_once_kills.judge import Violation
from tests.spark.kills import Driver

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


class Session:
    """A Spark session in a process of its own, made again after it was killed."""

    def __init__(self, kind: str, master: str, folder: Path) -> None:
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
        for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
            settings[name] += f" {shared_classes()}"
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
        """End all drivers."""
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
            for told in driver.said():
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
