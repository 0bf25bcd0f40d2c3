"""The demo from beginning to end."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from kprod.cli.demo.flights import Flights
from kprod.cli.demo.home import home_of
from kprod.cli.demo.plain_writer import PlainWriter
from kprod.cli.demo.plan import Plan
from kprod.cli.demo.report import Report
from kprod.cli.demo.screen import Screen
from kprod.cli.demo.spark_writer import SparkWriter
from kprod.cli.demo.tally import Tally
from kprod.cli.demo.target import Target
from kprod.cli.reader_security import reader_security
from kprod.cli.stop_signals import Stopped, stop_signals
from kprod.errors import KprodError

LOOK_EVERY = 2_000  # records


class Story:
    """One run of the demo. Thread: one, the main thread."""

    def __init__(self, plan: Plan, screen: Screen) -> None:
        self._plan = plan
        self._screen = screen

    def tell(self) -> int:
        """Write, read back, judge; return the exit code. Raises DemoFailure when it cannot go on.

        A signal ends it early, with everything it started, and the exit code a shell expects.
        """
        with tempfile.TemporaryDirectory(prefix="kprod-", ignore_cleanup_errors=True) as work:
            try:
                with stop_signals():
                    return self._tell(Path(work))
            except Stopped as stopped:
                self._screen.say(f"Stopped by {stopped}; nothing is left running.")
                return stopped.exit_code

    def _tell(self, work: Path) -> int:
        plan, screen = self._plan, self._screen
        flights = Flights(plan.records)
        with home_of(plan, work, screen) as address:
            security = reader_security({**plan.options, "bootstrap_servers": address})
            target = Target(address, plan.topic, plan.partitions, security)
            screen.say(f"{len(flights):,} flights to topic {plan.topic!r} on {address}")
            try:
                report = self._write_and_judge(flights, target, work)
            except Stopped:
                self._tell_delivered(target, len(flights))
                raise
            report.show(screen)
        return 0 if report.exact else 1

    def _tell_delivered(self, target: Target, flights: int) -> None:
        try:
            delivered = sum(target.written().values())
        except KprodError as error:
            self._screen.say(f"How many flights were in the topic by then is not known: {error}")
        else:
            self._screen.say(f"{delivered:,} of {flights:,} flights were in the topic by then.")

    def _write_and_judge(self, flights: Flights, target: Target, work: Path) -> Report:
        options = self._plan.options
        writer = SparkWriter(work, options) if self._plan.spark else PlainWriter(options)
        with self._screen.bar(writer.title, len(flights), before=writer.before) as progress:
            written = writer.write(flights, target, progress)
        started = time.monotonic()
        tally = Tally(flights)
        with self._screen.bar("Reading back", len(flights)) as progress:
            for partition, record in target.read():
                tally.see(partition, record)
                if tally.read_back % LOOK_EVERY == 0:
                    progress(tally.read_back)
        return Report(
            flights=len(flights),
            written=written,
            tally=tally,
            verify_seconds=time.monotonic() - started,
            embedded=self._plan.bootstrap_servers is None,
        )
