"""Runs the Spark job in a process of its own and watches it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kprod.cli.child_session import ChildSession
from kprod.cli.demo.failure import DemoFailure
from kprod.cli.demo.flights import Flights
from kprod.cli.demo.target import Target
from kprod.cli.demo.written import Written
from kprod.errors import KprodError

LOOK_EVERY = 0.25  # seconds between two looks at the topic
STOP_SECONDS = 5.0
LAST_LINES = 30  # of the job's log, when it fails


class SparkWriter:
    """Writes the flights with Spark. Its JVM and Python workers end with the call of ``write``.

    In a process of its own, because a JVM that was started inside this one would stay until this
    one ends, and would print between the lines of the demo.
    """

    title = "Spark is writing"
    before = "Spark is starting"

    def __init__(self, work: Path, options: Mapping[str, Any]) -> None:
        """``work`` is a directory for temporary files, ``options`` are those of the producer."""
        self._work = work
        self._options = options

    def write(self, flights: Flights, target: Target, progress: Callable[[int], None]) -> Written:
        """Write every flight; tell ``progress`` how many are in the topic meanwhile.

        Raises DemoFailure with the end of Spark's log when the job fails.
        """
        flights.write_csv(self._work / "flights.csv")
        # In a file of a directory that is ours alone: others see the command line.
        (self._work / "options.json").write_text(json.dumps(dict(self._options)))
        report = self._work / "report.json"
        job = ChildSession(self._command(target, report), self._work / "spark.log")
        try:
            while job.exit_code is None:
                time.sleep(LOOK_EVERY)
                with suppress(KprodError):  # the job itself will say if the broker is gone
                    progress(sum(target.written().values()))
            if job.exit_code != 0:
                last = "\n".join(job.output().splitlines()[-LAST_LINES:])
                raise DemoFailure(f"the Spark job failed:\n{last}")
            return Written.load(report)
        finally:
            job.stop(STOP_SECONDS)

    def _command(self, target: Target, report: Path) -> list[str]:
        arguments = {
            "--csv": self._work / "flights.csv",
            "--bootstrap-servers": target.bootstrap_servers,
            "--topic": target.topic,
            "--options": self._work / "options.json",
            "--scratch": self._work / "spark",
            "--report": report,
        }
        flat = [str(part) for pair in arguments.items() for part in pair]
        return [sys.executable, "-m", "kprod.cli.demo.flights_job", *flat]
