"""The whole demo: starts a broker, creates a topic, writes, reads back, and compares."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kprod.cli.child_process import BrokerProcess
from kprod.cli.demo.flights import Flights, Tally
from kprod.cli.demo.report import Report, Screen
from kprod.cli.demo.writers import Target, write_plainly, write_with_spark
from kprod.cli.exits import Stopped, stop_signals
from kprod.errors import KprodError


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of ``kprod demo``, which starts a broker if ``bootstrap_servers`` is None.

    ``options`` are the producer's options, which may contain secrets.
    """

    bootstrap_servers: str | None
    records: int
    spark: bool
    keep: bool
    data_dir: Path | None
    topic: str
    partitions: int
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@contextmanager
def home_of(plan: Plan, work: Path, screen: Screen) -> Iterator[str]:
    """Yield the address of the user's broker, or of an embedded one that runs in the block.

    With ``keep``, the embedded broker keeps running after a successful block, and the screen shows
    how to stop it. Raises CommandFailure if the broker does not start.
    """
    if plan.bootstrap_servers is not None:
        yield plan.bootstrap_servers
    elif plan.keep:
        yield from _kept(plan, work, screen)
    else:
        broker = BrokerProcess(plan.data_dir or work / "broker", work / "broker.log")
        try:
            yield broker.address()
        finally:
            broker.stop()


def _kept(plan: Plan, work: Path, screen: Screen) -> Iterator[str]:
    data = plan.data_dir or Path(tempfile.mkdtemp(prefix="kprod-demo-"))
    broker = BrokerProcess(data, work / "broker.log", outlives_us=True)
    try:
        address = broker.address()
        yield address
    except BaseException:
        broker.stop()
        if plan.data_dir is None:
            shutil.rmtree(data, ignore_errors=True)
        raise
    screen.say(f"The broker is still running on {address}, with its data in {data}")
    screen.say(
        f"  add to it:  echo hello | kprod produce --topic hello --bootstrap-servers {address}"
    )
    screen.say(f"  read it:    kcat -C -e -b {address} -t {plan.topic}")
    screen.say(f"  stop it:    kill {broker.pid}")


LOOK_EVERY = 2_000  # records


class Story:
    """One run of the demo. Used by the main thread only."""

    def __init__(self, plan: Plan, screen: Screen) -> None:
        self._plan = plan
        self._screen = screen

    def run(self) -> int:
        """Write, read back and compare; return the exit code. Raises CommandFailure on failure.

        A signal stops the demo and everything that it started. The exit code is then the one that a
        shell expects.
        """
        with tempfile.TemporaryDirectory(prefix="kprod-", ignore_cleanup_errors=True) as work:
            try:
                with stop_signals():
                    return self._run(Path(work))
            except Stopped as stopped:
                self._screen.say(f"Stopped by {stopped}; nothing is left running.")
                return stopped.exit_code

    def _run(self, work: Path) -> int:
        plan, screen = self._plan, self._screen
        flights = Flights(plan.records)
        with home_of(plan, work, screen) as address:
            target = Target(address, plan.topic, plan.partitions, plan.options)
            screen.say(f"{len(flights):,} flights to topic {plan.topic!r} on {address}")
            try:
                report = self._write_and_judge(flights, target, work)
            except Stopped:
                self._report_delivered(target, len(flights))
                raise
            report.show(screen)
        return 0 if report.exact else 1

    def _report_delivered(self, target: Target, flights: int) -> None:
        try:
            delivered = sum(target.written().values())
        except KprodError as error:
            self._screen.say(f"How many flights were in the topic by then is not known: {error}")
        else:
            self._screen.say(f"{delivered:,} of {flights:,} flights were in the topic by then.")

    def _write_and_judge(self, flights: Flights, target: Target, work: Path) -> Report:
        options, count = self._plan.options, len(flights)
        if self._plan.spark:
            with self._screen.bar("Spark is writing", count, before="Spark is starting") as advance:
                written = write_with_spark(flights, target, options, advance, work)
        else:
            with self._screen.bar("Writing", count, before="Connecting") as advance:
                written = write_plainly(flights, target, options, advance)
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
