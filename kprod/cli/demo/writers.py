"""The two ways to write the flights: from this process, and by a Spark job."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kprod.broker.log_reader import create_topic, end_offsets, read_topic
from kprod.cli.child_process import ChildSession
from kprod.cli.client_options import open_producer
from kprod.cli.demo.flights import Flights
from kprod.cli.exits import CommandFailure
from kprod.cli.figures import producer_options
from kprod.config.option import plain_name
from kprod.errors import BrokerError, KprodError

if TYPE_CHECKING:
    from kprod.broker.client_security import ClientSecurity
    from kprod.broker.records.record_batch import StoredRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Acknowledged records, their key and value bytes, and the seconds it took.

    ``tasks`` is the number of Spark tasks that wrote, 0 without Spark. ``options`` are those of the
    producer that matter for speed, in words, where this process has one.
    """

    records: int
    bytes: int
    seconds: float
    tasks: int = 0
    options: str = ""

    def save(self, path: Path) -> None:
        """Leave it for another process."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Written:
        """The result that another process has left. Raises OSError when it left none."""
        return cls(**json.loads(path.read_text()))


TOPIC_ALREADY_EXISTS = 36
READ_SECONDS = 600.0  # for reading everything back


class Target:
    """One topic, seen through the independent reader. Only what is written from now on counts."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, security: ClientSecurity
    ) -> None:
        """Create the topic unless it is there. Raises KprodError when no broker answers."""
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self._security = security
        self._create(partitions)
        self._before = end_offsets(bootstrap_servers, topic, security=security)

    def _create(self, partitions: int) -> None:
        try:
            create_topic(self.bootstrap_servers, self.topic, partitions, security=self._security)
        except BrokerError as error:
            if error.code != TOPIC_ALREADY_EXISTS:
                raise

    def written(self) -> dict[int, int]:
        """Records added since, by partition."""
        now = end_offsets(self.bootstrap_servers, self.topic, security=self._security)
        return {partition: end - self._before[partition] for partition, end in sorted(now.items())}

    def read(self) -> Iterator[tuple[int, StoredRecord]]:
        """The records added since, each with its partition, in offset order per partition."""
        return read_topic(
            self.bootstrap_servers,
            self.topic,
            since=self._before,
            timeout=READ_SECONDS,
            security=self._security,
        )


LINGER_MS = 20  # unless an option says otherwise
LOOK_EVERY = 2_000  # records
LAST_SECONDS = 1.0  # after Ctrl-C, for what is on its way


def write_plainly(
    flights: Flights, target: Target, options: Mapping[str, Any], progress: Callable[[int], None]
) -> Written:
    """Write every flight by one producer with ``options``, one record after the other.

    ``progress`` gets the number of acknowledged flights meanwhile. Raises CommandFailure when a
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
        first = next(iter(failures), "not told in time")
        raise CommandFailure(f"{report.failed:,} records failed; the first: {first}")
    seconds = time.monotonic() - started
    told = producer_options(producer.config)
    return Written(records=report.delivered, bytes=sent_bytes, seconds=seconds, options=told)


def _names_linger(options: Mapping[str, Any]) -> bool:
    return not {"linger_ms", "queue_buffering_max_ms"}.isdisjoint(map(plain_name, options))


def as_json(flights: Flights, row: int) -> bytes:
    """One flight as the Spark job writes it, with task 0."""
    fields = dict(zip(flights.columns, flights.lines[row].split(","), strict=True))
    return json.dumps({"row": row, "task": 0, **fields}, separators=(",", ":")).encode()


POLL_EVERY = 0.25  # seconds between two looks at the topic
STOP_SECONDS = 5.0
LAST_LINES = 30  # of the job's log, when it fails


def write_with_spark(
    flights: Flights,
    target: Target,
    options: Mapping[str, Any],
    progress: Callable[[int], None],
    work: Path,
) -> Written:
    """Write every flight by a Spark job; its JVM and Python workers end with this call.

    In a process of its own, because a JVM that was started inside this one would stay until this
    one ends, and would print between the lines of the demo. ``work`` is a directory for temporary
    files. ``progress`` gets the number of flights in the topic meanwhile. Raises CommandFailure
    with the end of Spark's log when the job fails.
    """
    flights.write_csv(work / "flights.csv")
    # In a file of a directory that is ours alone: other users see the command line.
    job = {"bootstrap_servers": target.bootstrap_servers, "topic": target.topic}
    (work / "job.json").write_text(json.dumps({**job, "options": dict(options)}))
    command = [sys.executable, "-m", "kprod.cli.demo.flights_job", str(work)]
    session = ChildSession(command, work / "spark.log")
    try:
        while session.exit_code is None:
            time.sleep(POLL_EVERY)
            with suppress(KprodError):  # the job itself will say if the broker is gone
                progress(sum(target.written().values()))
        if session.exit_code != 0:
            last = "\n".join(session.output().splitlines()[-LAST_LINES:])
            raise CommandFailure(f"the Spark job failed:\n{last}")
        return Written.load(work / "report.json")
    finally:
        session.stop(STOP_SECONDS)
