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
from kprod.errors import BrokerError, KprodError
from kprod.producer import KafkaProducer

if TYPE_CHECKING:
    from kprod.broker.cluster_client import ClientSecurity
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
        """What another process left. Raises OSError when it left nothing."""
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


class PlainWriter:
    """One producer in this process, one record after the other."""

    title = "Writing"
    before = "Connecting"

    def __init__(self, options: Mapping[str, Any]) -> None:
        """``options`` are those of the producer."""
        self._options = {"linger_ms": LINGER_MS} if not _names_linger(options) else {}
        self._options.update(options)

    def write(self, flights: Flights, target: Target, progress: Callable[[int], None]) -> Written:
        """Write every flight; tell ``progress`` how many are acknowledged meanwhile.

        Raises CommandFailure when a record is not delivered.
        """
        failures: list[KprodError] = []
        sent_bytes = 0
        started = time.monotonic()
        producer = open_producer(target.bootstrap_servers, self._options)
        try:
            for row in range(len(flights)):
                key, value = flights.key(row), as_json(flights, row)
                producer.send(target.topic, value, key).add_errback(failures.append)
                sent_bytes += len(key or b"") + len(value)
                if row % LOOK_EVERY == 0:
                    progress(_acknowledged(producer))
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
    return any(
        name.replace(".", "_") in ("linger_ms", "queue_buffering_max_ms") for name in options
    )


def as_json(flights: Flights, row: int) -> bytes:
    """One flight as the Spark job writes it, with task 0."""
    fields = dict(zip(flights.columns, flights.lines[row].split(","), strict=True))
    return json.dumps({"row": row, "task": 0, **fields}, separators=(",", ":")).encode()


def _acknowledged(producer: KafkaProducer) -> int:
    return int(producer.metrics()["producer-metrics"]["record-send-total"])


POLL_EVERY = 0.25  # seconds between two looks at the topic
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

        Raises CommandFailure with the end of Spark's log when the job fails.
        """
        flights.write_csv(self._work / "flights.csv")
        # In a file of a directory that is ours alone: others see the command line.
        (self._work / "options.json").write_text(json.dumps(dict(self._options)))
        report = self._work / "report.json"
        job = ChildSession(self._command(target, report), self._work / "spark.log")
        try:
            while job.exit_code is None:
                time.sleep(POLL_EVERY)
                with suppress(KprodError):  # the job itself will say if the broker is gone
                    progress(sum(target.written().values()))
            if job.exit_code != 0:
                last = "\n".join(job.output().splitlines()[-LAST_LINES:])
                raise CommandFailure(f"the Spark job failed:\n{last}")
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
