"""A producer without brokers, for unit tests. It checks records and keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self, Unpack

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.bulk_calls import BulkCalls
from kprod.cluster.snapshot import PartitionInfo, Partitions, TopicInfo
from kprod.config import ProducerConfig
from kprod.config.option_types import ProducerOptions
from kprod.config.reading import concealed
from kprod.errors import IllegalStateError, KprodError, PartitionError, ProducerClosedError
from kprod.intake.arguments import SizeLimits, checked_record, refuse_positions
from kprod.intake.completion import call_once, check_callback
from kprod.intake.configured_partitioner import partitioner_for
from kprod.intake.interceptors import Interceptors, closable, close_all
from kprod.intake.serializers import Serializers
from kprod.lock import Lock
from kprod.types import DeliveryReport, Header, OnCompletion, ProducerRecord, TopicPartition
from kprod_ext import RecordClock
from kprod_ext.futures import FutureRecordMetadata


@dataclass(frozen=True, slots=True)
class RecordedRecord:
    """A record as a broker would have received it.

    ``offset`` is the position in the partition; only stored records are counted. It is None until
    the record has a result, and stays None if the result is ``error``.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    error: KprodError | None = None


class RecordingProducer(BulkCalls):
    """A producer without a network that keeps its records in ``records``. Thread-safe.

    ``send``, ``send_many``, ``send_arrow``, ``flush`` and ``close`` work like those of
    KafkaProducer. They check options and arguments, call interceptors, serializers and the
    partitioner, and raise the same errors. Transactions, dead letters, most metrics and batches are
    missing: a partitioner's ``on_new_batch`` is not called. Test these with ``EmbeddedBroker``.

    Every topic exists. ``topics`` maps names of topics to numbers of partitions; other topics have
    ``partitions`` partitions. By default, ``send`` completes a record at once. With
    ``completes=False``, a record gets its result when the test calls ``complete``, ``fail``,
    ``flush`` or ``close``. Callbacks run in the thread that makes the call. Raises ConfigError for
    an invalid option. The model is Kafka's ``MockProducer``.
    """

    _bulk = None

    def __init__(
        self,
        *misplaced: object,
        partitions: int = 1,
        topics: Mapping[str, int] | None = None,
        completes: bool = True,
        **options: Unpack[ProducerOptions],
    ) -> None:
        options = concealed(options)
        refuse_positions(misplaced)
        self.config = ProducerConfig.from_options(options)
        self._counts = dict(topics or {})
        self._partitions = partitions
        self._completes = completes
        self._interceptors = Interceptors(self.config.interceptors)
        self._serializers = Serializers(self.config.key_serializer, self.config.value_serializer)
        self._size_limits = SizeLimits(self.config)
        config = self.config
        self._partitioner = partitioner_for(
            config.partitioner, config.batch_size, ignore_keys=config.partitioner_ignore_keys
        )
        plugged = config.key_serializer, config.value_serializer, config.partitioner
        self._clock = RecordClock()
        self._callbacks = Callbacks()
        self._lock = Lock()  # guards what follows
        self._records: list[RecordedRecord] = []
        self._pending: deque[tuple[int, BatchDelivery]] = deque()  # by place in _records
        self._offsets: dict[TopicPartition, count[int]] = {}
        self._failures: deque[KprodError] = deque()
        self._topics: dict[str, TopicInfo] = {}
        self._plugins = closable((*plugged, *config.interceptors))
        self._closed = False

    # As an application calls it -------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: OnCompletion | None = None,
    ) -> FutureRecordMetadata:
        """Keep one record; return its future. Raises the errors of ``KafkaProducer.send``."""
        self._ensure_open()
        if callback is not None:
            check_callback(callback)
        record = checked_record(topic, value, key, headers, partition, timestamp_ms)
        record = self._interceptors.on_send(record)
        try:
            future = self._kept(record)
        except KprodError as error:
            self._interceptors.on_send_error(record, error)
            raise
        if callback is not None:
            call_once(future, callback)
        if self._completes:
            self.complete()
        return future

    def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Complete every record. ``timeout`` has no effect."""
        self.complete(len(self._pending))
        with self._lock:
            failed = sum(record.error is not None for record in self._records)
            return DeliveryReport(len(self._records) - failed, failed, 0)

    def close(self, timeout: float | None = None) -> DeliveryReport:
        """Complete every record. Afterwards, ``send`` raises ProducerClosedError.

        Serializers, the partitioner and interceptors that have a method ``close`` are then closed,
        once.
        """
        self._closed = True
        report = self.flush(timeout)
        with self._lock:
            plugins, self._plugins = self._plugins, []
        close_all(plugins)
        return report

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return how many ``records`` were stored, and how many failed, under Kafka's names."""
        records = self.records
        groups = {"producer-metrics": _totals(records)}
        for topic in dict.fromkeys(record.topic for record in records):
            own = [record for record in records if record.topic == topic]
            groups[f"producer-topic-metrics.{topic}"] = _totals(own)
        return groups

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers."""
        return set(range(len(self._topic(topic))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the test ---------------------------------------------------------------------------------

    @property
    def records(self) -> list[RecordedRecord]:
        """Every record that ``send`` accepted, in order. A failed record has its error."""
        with self._lock:
            return list(self._records)

    def records_of(self, topic: str) -> list[RecordedRecord]:
        """The records of one topic."""
        return [record for record in self.records if record.topic == topic]

    def clear(self) -> None:
        """Remove all records.

        Raises IllegalStateError if a record has no result yet.
        """
        with self._lock:
            if self._pending:
                raise IllegalStateError(f"{len(self._pending)} records have no outcome yet")
            self._records.clear()

    def complete(self, records: int = 1) -> None:
        """Store the oldest records without a result. Those that ``fail_next`` has set fail."""
        for _ in range(records):
            with self._lock:
                error = self._failures.popleft() if self._pending and self._failures else None
            self._end_oldest(error)

    def fail(self, error: KprodError, records: int = 1) -> None:
        """Fail the oldest records without a result with ``error``."""
        for _ in range(records):
            self._end_oldest(error)

    def fail_next(self, error: KprodError, records: int = 1) -> None:
        """Let the next records that are completed fail with ``error``."""
        with self._lock:
            self._failures.extend([error] * records)

    # How ------------------------------------------------------------------------------------------

    def _ensure_open(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer is closed")

    def _topic(self, name: str) -> TopicInfo:
        known = self._topics.get(name)
        if known is None:
            number = self._counts.get(name, self._partitions)
            led = Partitions.of(PartitionInfo(each, leader_id=0) for each in range(number))
            known = self._topics.setdefault(name, TopicInfo(name, None, led))
        return known

    def _kept(self, record: ProducerRecord) -> FutureRecordMetadata:
        key, value, headers = self._serializers.apply(record)
        record = replace(record, headers=headers)
        self._size_limits.check(record, key, value)
        topic, partition = self._topic(record.topic), record.partition
        if partition is None:
            partition = self._partitioner.choose(topic, key)
        elif partition >= len(topic):
            raise PartitionError(f"topic {topic.name!r} has no partition {partition}")
        stamp = record.timestamp_ms
        stamp = self._clock.wall_ms() if stamp is None else stamp
        tp = TopicPartition(record.topic, partition)
        delivery = BatchDelivery(tp, lambda: None, self._callbacks)
        kept = RecordedRecord(
            *tp,
            offset=None,
            timestamp_ms=stamp,
            key=None if key is None else bytes(key),
            value=None if value is None else bytes(value),
            headers=tuple(headers),
        )
        key_size, value_size = map(_size, (kept.key, kept.value))
        carried = sum(len(name.encode()) + len(data or b"") for name, data in headers)
        header_size = carried if headers else -1
        future = FutureRecordMetadata(delivery, 0, stamp, key_size, value_size, header_size)
        with self._lock:
            self._pending.append((len(self._records), delivery))
            self._records.append(kept)
        self._partitioner.appended(topic, partition, max(0, key_size) + max(0, value_size), False)
        if self._interceptors.watch_outcomes:
            self._interceptors.follow(replace(record, partition=partition), future)
        return future

    def _end_oldest(self, error: KprodError | None) -> None:
        with self._lock:
            if not self._pending:
                return
            index, delivery = self._pending.popleft()
            kept = self._records[index]
            if error is None:
                offset = next(self._offsets.setdefault(delivery.tp, count()))
                self._records[index] = replace(kept, offset=offset)
            else:
                self._records[index] = replace(kept, error=error)
        if error is None:
            delivery.succeed(offset, -1)
        else:
            delivery.fail(error)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _totals(records: list[RecordedRecord]) -> dict[str, float]:
    return {
        "record-send-total": sum(record.offset is not None for record in records),
        "record-error-total": sum(record.error is not None for record in records),
    }
