"""Lends the producer of a worker process to one task, and tracks the result of each record."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from kprod.config.option import plain_name
from kprod.config.option_types import ProducerOptions
from kprod.config.reading import with_defaults
from kprod.errors import (
    ConfigError,
    InvalidBatchError,
    InvalidTopicError,
    KprodError,
    KprodTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from kprod.intake.arguments import check_seconds, check_topic
from kprod.intake.dead_letters import shortened
from kprod.intake.serializers import bound
from kprod.lock import Lock
from kprod.schema.columns.record_columns import beyond_partitions, without
from kprod.schema.columns.record_plan import Rows, SendArguments, size_of
from kprod.sender.engine import LONGEST_WAIT
from kprod.spark.acknowledgements import (
    Acknowledgements,
    LetterBytes,
    RejectedRows,
    RowPolicy,
    is_about_the_record,
    letter_bytes,
)
from kprod.spark.options import concealed_for_tasks, fingerprint_of, job_options, resolved
from kprod.spark.write_result import OffsetRange

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery
    from kprod.producer import KafkaProducer
    from kprod.types import Header
    from kprod_ext.futures import FutureRecordMetadata

CLOSING_SECONDS = 5.0
"""Seconds to abort a transaction after an exception; after that, it is left to time out."""
MOST = 4
"""Maximum number of idle producers that one process keeps for later tasks."""


class ProducerCache:
    """Producers by configuration, created on first use. Thread-safe; one per process.

    A worker process runs many tasks one after the other (``spark.python.worker.reuse``). The tasks
    share connections, metadata and batches. When Spark ends an idle worker, its producers end, too.
    No record is lost, because each task waits for the results of its records. Options may change
    from run to run, so only the ``MOST`` most recently used of the idle producers are kept.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards the two below
        self._producers: dict[str, KafkaProducer] = {}  # the one that was lent last at the end
        self._lent: Counter[KafkaProducer] = Counter()  # how many blocks have it

    @contextmanager
    def lend(self, fingerprint: str, options: Mapping[str, Any]) -> Iterator[KafkaProducer]:
        """Lend the producer with these options to one block, after creating it if necessary.

        If the block raises, the next block gets a new producer. The old producer is closed as soon
        as no other block uses it. Its unsent records are dropped on purpose: the next attempt of
        the failed task sends every record again, so they would be duplicates.
        """
        with self._lock:
            producer = self._producers.pop(fingerprint, None)
            if producer is None:
                producer = _made(options)
            self._producers[fingerprint] = producer
            self._lent[producer] += 1
        failed = True
        try:
            yield producer
            failed = False
        finally:
            with self._lock:
                if failed and self._producers.get(fingerprint) is producer:
                    del self._producers[fingerprint]
                unused = self._take_back(fingerprint, producer)
            for each in unused:
                each.close(timeout=0)

    @contextmanager
    def lend_alone(
        self, fingerprint: str, options: Mapping[str, Any], transactional_id: str
    ) -> Iterator[KafkaProducer]:
        """Lend a transactional producer, which no other block has meanwhile.

        A new one gets this id; one that was lent before has another, or the same. If the block
        raises, the producer is closed, which aborts its open transaction.
        """
        name = f"alone {fingerprint}"
        with self._lock:
            producer = self._producers.pop(name, None)
        if producer is None:
            producer = _made({**options, "transactional_id": transactional_id})
        try:
            yield producer
        except BaseException:
            producer.close(CLOSING_SECONDS)
            raise
        with self._lock:
            surplus = self._producers.pop(name, None)
            self._producers[name] = producer
            unused = self._surplus() if surplus is None else [surplus]
        for each in unused:
            each.close(timeout=0)

    def _take_back(self, fingerprint: str, producer: KafkaProducer) -> list[KafkaProducer]:
        """The producers to close when a block has ended. Requires the lock."""
        self._lent[producer] -= 1
        unused = []
        if not self._lent[producer]:
            del self._lent[producer]
            if self._producers.get(fingerprint) is not producer:
                unused.append(producer)
        return unused + self._surplus()

    def _surplus(self) -> list[KafkaProducer]:
        """Take out the idle producers that are too many. Requires the lock."""
        idle = [name for name, each in self._producers.items() if not self._lent[each]]
        return [self._producers.pop(name) for name in idle[:-MOST]]

    def close(self) -> None:
        """Close all producers, as if a block of each had failed.

        Needed only in a process that outlives its brokers, such as a test. Its producers would
        otherwise try to reconnect for ever.
        """
        with self._lock:
            unused = [each for each in self._producers.values() if not self._lent[each]]
            self._producers.clear()
        for each in unused:
            each.close(timeout=0)


def _made(options: Mapping[str, Any]) -> KafkaProducer:
    # Imported here: the driver that only describes a job opens no door to the network.
    from kprod.producer import KafkaProducer

    return KafkaProducer(**producer_options(options))


def producer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for a ``KafkaProducer`` of this process, with placeholders replaced.

    Raises ConfigError for a placeholder that has no value here.
    """
    given = {
        name: _around(value) if plain_name(name) in SERIALIZERS else value
        for name, value in resolved(options).items()
    }
    return with_defaults(given, {"client_id": f"kprod-spark-{socket.gethostname()}-{os.getpid()}"})


SERIALIZERS = ("key_serializer", "value_serializer")


def _around(own: Any) -> _Around | None:
    """The serializer of an option; None if it takes only bytes."""
    serialize = None if own == "bytes" else bound(own)
    return None if serialize is None else _Around(serialize, getattr(own, "close", None))


class _Around:
    """Wraps a serializer of the application, which must not see the bytes of dead letters."""

    def __init__(self, serialize: Callable[..., Any], close: Any) -> None:
        self._serialize = serialize
        if callable(close):
            self.close = close

    def serialize(self, topic: str, headers: Any, data: Any) -> Any:
        """See ``Serializers``."""
        if type(data) is LetterBytes:
            return bytes(data)
        return self._serialize(topic, headers, data)


_cache = ProducerCache()


def process_cache() -> ProducerCache:
    """The cache of this process."""
    return _cache


def _forget_inherited() -> None:
    # A worker forked from a process that has producers inherits their sockets but not the threads
    # that serve them, and perhaps a lock some other thread held at that moment.
    global _cache  # noqa: PLW0603
    _inherited.append(_cache)
    _cache = ProducerCache()


_inherited: list[ProducerCache] = []
"""Caches of parent processes; kept but not used, so that no destructor runs in the child."""

os.register_at_fork(after_in_child=_forget_inherited)


@contextmanager
def executor_producer(
    *, timeout: float | None = None, **options: Unpack[ProducerOptions]
) -> Iterator[LentProducer]:
    """Return a context manager with the producer of this worker process, for code in a Spark task.

    The object that the ``with`` statement returns has the method ``send`` of ``KafkaProducer``
    (without ``callback``), but not its other methods. After the block, its ``records`` is the
    number of acknowledged records.

    Blocks with the same options share one producer. At its end, a block waits until every record
    that was sent in it is acknowledged. It raises DeliveryError if a record failed, or if a record
    was not acknowledged within ``timeout`` seconds (default: ``delivery_timeout_ms`` plus 10
    seconds). After any exception in a block, the next block gets a new producer. The old producer
    is closed as soon as no other block uses it.

    The options are those of ``KafkaProducer``, with larger batches by default. Raises ConfigError
    for an invalid option. The function is thread-safe. Use the producer of a block in one thread
    only.
    """
    options = concealed_for_tasks(options)
    with JobProducer(options=job_options(options), timeout=timeout).lend() as producer:
        yield LentProducer(producer)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProducer:
    """The producer that each task of a job uses, as the driver describes it. Immutable.

    ``options`` are a result of ``job_options``. ``timeout`` limits the wait for acknowledgements at
    the end of a task, in seconds; None: ``delivery_timeout_ms`` and a margin. Raises ConfigError
    for an invalid timeout, and if an option cannot be pickled.
    """

    options: Mapping[str, Any] = field(repr=False)
    timeout: float | None = None
    policy: RowPolicy = field(default_factory=RowPolicy)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            check_seconds("timeout", self.timeout, LONGEST_WAIT)
        except KprodError:
            raise ConfigError(
                f"timeout: expected seconds up to {LONGEST_WAIT:,.0f}, or None;"
                f" got {self.timeout!r}"
            ) from None
        object.__setattr__(self, "fingerprint", fingerprint_of(self.options))

    @contextmanager
    def lend(self) -> Iterator[TaskProducer]:
        """Lend this process's producer to one block, as ``executor_producer`` does."""
        with process_cache().lend(self.fingerprint, self.options) as lent:
            producer = TaskProducer(lent, self)
            yield producer
            producer.finish()

    def lend_alone(self, transactional_id: str) -> AbstractContextManager[KafkaProducer]:
        """Lend a producer for transactions of one block. A new one gets this id."""
        return process_cache().lend_alone(self.fingerprint, self.options, transactional_id)


MARGIN_SECONDS = 10.0  # what a flush may take beyond the time a record may take


class MeasuringProducer:
    """Like ``TaskProducer``, but only counts rows and their bytes. For one thread only."""

    rejected: RejectedRows | None = None

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        """Of keys and values."""

    def send(self, topic: str, value: Any = None, key: Any = None, *others: Any) -> Any:
        """Count one row."""
        self.rows += 1
        self.bytes += size_of(value, key)
        return None

    def send_rows(self, rows: Rows) -> None:
        """Count rows of one topic."""
        self.rows += rows.num_rows
        self.bytes += rows.nbytes


class TaskProducer(MeasuringProducer):
    """Sends the records of one task, and checks all results. For one thread only, the task's.

    ``rejected`` handles invalid rows; if it is None, an invalid row fails the task. ``rows`` and
    ``bytes`` count the rows that were passed in, and the bytes of their keys and values. ``send``
    counts only in a transaction, because counting takes time for each row.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        of_job: JobProducer,
        *,
        in_transaction: bool = False,
    ) -> None:
        """``in_transaction``: one record that the broker rejects fails the whole transaction.

        This does not depend on the policy of the job.
        """
        super().__init__()
        timeout, policy = of_job.timeout, of_job.policy
        if timeout is None:
            timeout = producer.config.delivery_timeout_ms / 1000 + MARGIN_SECONDS
        self.flush_seconds = 0.0
        self._in_transaction = in_transaction
        self._dead_letters = Acknowledgements(timeout)
        if policy.on_row_error != "fail":
            self.rejected = RejectedRows(policy, self._send_dead_letter)
        takes_refused = self.rejected is not None and not in_transaction
        self.outcomes = Acknowledgements(timeout, self._take_refused if takes_refused else None)
        self._producer = producer
        self._timeout = timeout
        self._retries_before = self._retry_total()

    def partition_count(self, topic: str) -> int:
        """The topic's number of partitions. Raises as ``KafkaProducer.partitions_for``."""
        return len(self._producer.partitions_for(topic))

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """As ``KafkaProducer.send``; also raises DeliveryError if an earlier record has failed."""
        future = self._producer.send(topic, value, key, headers, partition, timestamp_ms)
        if self._in_transaction:
            super().send(topic, value, key)
        row = None
        if self.rejected is not None:
            copied = None if headers is None else list(headers)
            row = topic, value, key, copied, partition, timestamp_ms
        self.outcomes.expect(future, row)
        return future

    def send_rows(self, rows: Rows) -> None:
        """Send rows with one bulk call. Raises its errors, and DeliveryError as ``send``.

        If one row is invalid, the call queues nothing, or the rows before it if it sends singly.
        If the row is rejected, the others are sent separately.
        """
        rejected = self.rejected
        if rejected is not None:
            try:
                check_topic(rows.topic)
            except InvalidTopicError as error:
                for number in range(rows.num_rows):
                    rejected.take(rows.arguments(number), error)
                return
            rows = self._within_partitions(rows, rejected)
        while rows.num_rows:
            try:
                self._queue(rows)
                return
            except KprodError as error:
                row = error.record
                if rejected is None or row is None or not is_about_the_record(error):
                    raise
                before = rows.slice(0, row)
                if getattr(error, "accepted", 0):
                    self._expect(before, error.delivery)  # type: ignore[attr-defined]
                elif row:
                    self._queue(before)
                rejected.take(rows.arguments(row), _unnumbered(error))
                rows = rows.slice(row + 1)

    def _within_partitions(self, rows: Rows, rejected: RejectedRows) -> Rows:
        """Reject rows for partitions that the topic does not have; return the other rows."""
        if "partition" not in rows.batch.schema.names:
            return rows
        faults = beyond_partitions(rows.batch, self.partition_count(rows.topic))
        for row, error in faults.items():
            rejected.take(rows.arguments(row), error)
        return Rows(rows.topic, without(rows.batch, faults)) if faults else rows

    def _queue(self, rows: Rows) -> None:
        try:
            delivery = rows.send(self._producer)
        except KprodError as error:
            if self.outcomes.sent:
                error.add_note(f"record 0 of this call is record {self.outcomes.sent} of the task")
            raise
        self._expect(rows, delivery)

    def _expect(self, rows: Rows, delivery: BulkDelivery) -> None:
        super().send_rows(rows)
        kept = None if self.rejected is None else rows
        self.outcomes.expect(delivery, kept, rows.nbytes)

    def finish(self) -> None:
        """Wait until every record of the task is acknowledged.

        Raises DeliveryError if a record has failed, or has no result after ``timeout`` seconds.
        """
        started = time.monotonic()
        self.outcomes.finish(self._flush)
        self._dead_letters.finish(self._flush)
        self.flush_seconds = time.monotonic() - started

    def figures(self) -> dict[str, Any]:
        """The fields of a ``PartitionReport`` about records."""
        return {
            **({} if self.rejected is None else self.rejected.figures()),
            "records": self.outcomes.records,
            "bytes": self.outcomes.bytes,
            "retries": self._retry_total() - self._retries_before,
            "offsets": self.ranges(),
            "flush_seconds": self.flush_seconds,
        }

    def ranges(self) -> list[OffsetRange]:
        """The offsets of the records and of the dead letters."""
        return [*self.outcomes.ranges(), *self._dead_letters.ranges()]

    def _flush(self) -> None:
        with suppress(KprodTimeoutError):  # the outcomes say more than "it took too long"
            self._producer.flush(self._timeout)

    def _take_refused(self, row: SendArguments, error: KprodError) -> bool:
        """Reject an invalid row. Send a row again if another row in its batch was invalid."""
        assert self.rejected is not None
        if isinstance(error, InvalidBatchError):
            self.send(*row)
        elif is_about_the_record(error):
            self.rejected.take(row, error)
        else:
            return False
        return True

    def _send_dead_letter(self, topic: str, value: Any, key: Any, *rest: Any) -> None:
        """Send a dead letter, serialized like the record, or without a serializer if that fails.

        A letter that is too large is shortened.
        """
        try:
            future = self._producer.send(topic, value, key, *rest)
        except (RecordTooLargeError, SerializationError):
            made = topic, letter_bytes(value), letter_bytes(key), *rest
            try:
                future = self._producer.send(*made)
            except RecordTooLargeError:
                _, value, key, *short = shortened(*made)
                future = self._producer.send(topic, letter_bytes(value), letter_bytes(key), *short)
        self._dead_letters.expect(future)

    def _retry_total(self) -> int:
        return int(self._producer.metrics()["producer-metrics"]["record-retry-total"])


class LentProducer:
    """What ``executor_producer`` lends to a block. For one thread only."""

    def __init__(self, task: TaskProducer) -> None:
        self._task = task

    @property
    def records(self) -> int:
        """The number of acknowledged records. It is complete after the block."""
        return self._task.outcomes.records

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """As ``KafkaProducer.send``; also raises DeliveryError if an earlier record has failed."""
        return self._task.send(topic, value, key, headers, partition, timestamp_ms)


def _unnumbered(error: KprodError) -> KprodError:
    """Remove the row's number from the error, because it counts from the last split of the rows."""
    if error.args:
        error.args = (str(error.args[0]).removeprefix(f"record {error.record}: "),)
    return error
