"""The two ways to write the flights: from this process, and with a Spark job."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kprod.admin import create_topic, end_offsets, read_topic
from kprod.cli.child_process import ChildSession
from kprod.cli.client_options import open_producer
from kprod.cli.demo.flights import Flights
from kprod.cli.exits import CommandFailure
from kprod.cli.figures import producer_options
from kprod.config.reading import option_name
from kprod.errors import BrokerError, KprodError

if TYPE_CHECKING:
    from kprod.records.record_batch import StoredRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The number of acknowledged records, the bytes of their keys and values, and the seconds.

    ``tasks`` is the number of Spark tasks that wrote; 0 without Spark. ``options`` describes the
    producer's options that matter for speed. It is empty if tasks have the producers.
    """

    records: int
    bytes: int
    seconds: float
    tasks: int = 0
    options: str = ""

    def save(self, path: Path) -> None:
        """Write this result to a file for another process."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Written:
        """The result that another process saved. Raises OSError if there is none."""
        return cls(**json.loads(path.read_text()))


TOPIC_ALREADY_EXISTS = 36
READ_SECONDS = 600.0  # for reading everything back


class Target:
    """One topic, which the independent reader reads. Only records written from now on count."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, options: Mapping[str, Any]
    ) -> None:
        """Create the topic, if it does not exist. Raises KprodError if no broker answers."""
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self._options = options
        self._create(partitions)
        self._before = end_offsets(bootstrap_servers, topic, options=options)

    def _create(self, partitions: int) -> None:
        try:
            create_topic(self.bootstrap_servers, self.topic, partitions, options=self._options)
        except BrokerError as error:
            if error.code != TOPIC_ALREADY_EXISTS:
                raise

    def written(self) -> dict[int, int]:
        """The number of records added since the start, by partition."""
        now = end_offsets(self.bootstrap_servers, self.topic, options=self._options)
        return {partition: end - self._before[partition] for partition, end in sorted(now.items())}

    def read(self) -> Iterator[tuple[int, StoredRecord]]:
        """The records added since the start, each with its partition, in offset order."""
        return read_topic(
            self.bootstrap_servers,
            self.topic,
            since=self._before,
            timeout=READ_SECONDS,
            options=self._options,
        )


LINGER_MS = 20  # unless an option says otherwise
LOOK_EVERY = 2_000  # records
LAST_SECONDS = 1.0  # after Ctrl-C, for records in flight


def write_plainly(
    flights: Flights, target: Target, options: Mapping[str, Any], progress: Callable[[int], None]
) -> Written:
    """Write every flight with one ``send``, with a producer that has these ``options``.

    ``progress`` is called with the number of acknowledged flights. Raises CommandFailure if a
    record is not delivered.
    """
    failures: list[KprodError] = []
    sent_bytes = 0
    started = time.monotonic()
    lingering = {} if _names_linger(options) else {"linger_ms": LINGER_MS}
    producer = open_producer(target.bootstrap_servers, lingering | dict(options))
    try:
        for row in range(len(flights)):
            key, value = flights.key(row), as_json(flights, row)
            producer.send(target.topic, value, key).add_errback(failures.append)
            sent_bytes += len(key or b"") + len(value)
            if row % LOOK_EVERY == 0:
                progress(int(producer.metrics()["producer-metrics"]["record-send-total"]))
        report = producer.close()
    except KprodError as error:
        raise CommandFailure(f"a record could not be sent: {error}") from error
    finally:
        producer.close(timeout=LAST_SECONDS)  # when interrupted; else it is closed already
    if report.failed:
        first = next(iter(failures), "no result before the close timeout")
        raise CommandFailure(f"{report.failed:,} records failed; the first: {first}")
    seconds = time.monotonic() - started
    described = producer_options(producer.config)
    return Written(records=report.delivered, bytes=sent_bytes, seconds=seconds, options=described)


def _names_linger(options: Mapping[str, Any]) -> bool:
    return "linger_ms" in map(option_name, options)


def as_json(flights: Flights, row: int) -> bytes:
    """One flight as the Spark job writes it, with task 0."""
    fields = dict(zip(flights.columns, flights.lines[row].split(","), strict=True))
    return json.dumps({"row": row, "task": 0, **fields}, separators=(",", ":")).encode()


POLL_EVERY = 0.25  # seconds between two reads of the topic's offsets
STOP_SECONDS = 5.0
LAST_LINES = 30  # of the job's log, when it fails


def write_with_spark(
    flights: Flights,
    target: Target,
    options: Mapping[str, Any],
    progress: Callable[[int], None],
    work: Path,
) -> Written:
    """Write every flight with a Spark job, whose JVM and Python workers end with this call.

    The job is a separate process. A JVM started in this process would run until this process ends,
    and would print between the lines of the demo. ``work`` is a directory for temporary files.
    ``progress`` is called with the number of flights in the topic. Raises CommandFailure, with the
    end of Spark's log, if the job fails.
    """
    flights.write_csv(work / "flights.csv")
    # In a file of a private directory: other users can see the command line.
    job = {"bootstrap_servers": target.bootstrap_servers, "topic": target.topic}
    (work / "job.json").write_text(json.dumps({**job, "options": dict(options)}))
    command = [sys.executable, "-m", "kprod.cli.demo.flights_job", str(work)]
    session = ChildSession(command, work / "spark.log")
    try:
        while session.exit_code is None:
            time.sleep(POLL_EVERY)
            with suppress(KprodError):  # if the broker is gone, the job itself reports it
                progress(sum(target.written().values()))
        if session.exit_code != 0:
            last = "\n".join(session.output().splitlines()[-LAST_LINES:])
            raise CommandFailure(f"the Spark job failed:\n{last}")
        return Written.load(work / "report.json")
    finally:
        session.stop(STOP_SECONDS)
