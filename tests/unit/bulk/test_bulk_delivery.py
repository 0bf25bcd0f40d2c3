"""Bulk calls: outcomes, progress and failures of their delivery, and calls of Python code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kprod import KafkaProducer, Persisted, RecordMetadata, TopicPartition
from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.delivery import BulkDelivery, BulkProgress
from kprod.bulk.writing import Accounted
from kprod.errors import (
    BrokerError,
    DeliveryError,
    InvalidBatchError,
    InvalidRecordError,
    KprodError,
    RecordTooLargeError,
    RecordTypeError,
)
from kprod.wire.versions import ApiKey
from kprod_ext import SentRecords
from tests.support.entered import entered
from tests.support.scripted_cluster import ScriptedCluster, refuse, silence
from tests.support.scripted_producer import cluster_of, producer_before

INVALID_RECORD, TOO_LARGE = 87, 10
VALUES = [b"%03d" % n for n in range(100)]


def producer_of(cluster: ScriptedCluster, **options: Any) -> KafkaProducer:
    """A connected producer: scripted answers apply to the next records."""
    producer = producer_before(cluster, **options)
    producer.send("t", b"first", partition=0).get(timeout=20)
    return producer


def test_every_record_has_its_outcome() -> None:
    batch = batch_of(0)
    handle = handle_of((batch, 3))
    batch.succeed(7, -1)
    for number, outcome in enumerate(handle):
        assert isinstance(outcome, RecordMetadata)
        assert (outcome.topic_partition, outcome.offset) == (("t", 0), 7 + number)
        assert outcome == handle[number - 3] == handle.outcome(number) == outcome
    for outside in (3, -4):
        with pytest.raises(IndexError):
            handle[outside]


def batch_of(partition: int) -> BatchDelivery:
    return BatchDelivery(TopicPartition("t", partition), expedite=lambda: None)


def handle_of(*parts: tuple[BatchDelivery, int]) -> BulkDelivery:
    """The delivery of a call that has put the first so many records into each of the batches."""
    sent = SentRecords()
    for batch, count in parts:
        for index in range(count):
            sent.add(batch, index)
    return BulkDelivery(sent)


def test_progress_is_available_before_all_outcomes_are_known() -> None:
    batches = [batch_of(partition) for partition in range(3)]
    handle = handle_of(*((batch, count) for count, batch in enumerate(batches, start=1)))
    assert handle.progress() == BulkProgress(0, 0, 6, None, TopicPartition("t", 0))
    batches[0].succeed(0, -1)
    batches[1].fail(BrokerError(INVALID_RECORD))
    known = handle.progress()
    assert (known.acknowledged, known.failed, known.pending) == (1, 2, 3)
    assert known.waits_for == TopicPartition("t", 2)
    failure = known.failure
    assert failure is not None
    assert (failure.acknowledged, failure.failed, failure.pending) == (1, 2, 3)
    assert "3 have no outcome yet" in str(failure)
    assert failure.topic_partition == TopicPartition("t", 1)
    assert isinstance(failure.__cause__, BrokerError)
    assert failure.persisted is Persisted.MAYBE, "those without an outcome may be in the log"
    batches[2].succeed(0, -1)
    final = handle.progress().failure
    assert final is not None
    assert "no outcome" not in str(final)
    assert final.persisted is Persisted.NO


def test_progress_of_a_split_batch_counts_its_parts() -> None:
    batch, one, other = batch_of(0), batch_of(0), batch_of(0)
    handle = handle_of((batch, 10))
    batch.split_into([(0, one), (4, other)])
    assert handle.progress().pending == 10
    one.fail(RecordTooLargeError("too large"))
    known = handle.progress()
    assert (known.acknowledged, known.failed, known.pending) == (0, 4, 6)
    other.succeed(7, -1)
    known = handle.progress()
    assert (known.acknowledged, known.failed, known.pending) == (6, 4, 0)


class FailingDuringLookup(BatchDelivery):
    """Calls ``ends`` after its parts were read, and before its outcome is."""

    ends: Callable[[], object] | None = None

    def locate(self, index: int) -> tuple[BatchDelivery, int]:
        found = super().locate(index)
        if self.ends is not None:
            ends, self.ends = self.ends, None
            ends()
        return found


def test_an_outcome_is_correct_when_its_batch_fails_during_the_lookup() -> None:
    batch = FailingDuringLookup(TopicPartition("t", 0), expedite=lambda: None)
    handle = handle_of((batch, 2))
    refused, others = InvalidRecordError("refused"), InvalidBatchError("among others")
    batch.ends = lambda: batch.fail_each([(0, others), (1, refused)])
    outcome = handle.outcome(1)
    assert isinstance(outcome, InvalidRecordError)


def test_only_the_oversized_record_of_a_split_batch_fails() -> None:
    cluster = cluster_of(1)
    broker = cluster.brokers[1]
    with producer_of(cluster, linger_ms=60_000) as producer:
        # The batch of four is split, its first half as well, and the first record refused alone.
        broker.next(ApiKey.PRODUCE, *[refuse(TOO_LARGE)] * 3)
        handle = producer.send_many("t", VALUES[:4])
        with pytest.raises(DeliveryError, match="1 of 4 records failed"):
            handle.get(timeout=20)
    assert handle.failed_indices() == [0]
    assert isinstance(handle[0], RecordTooLargeError)
    assert [outcome.offset for outcome in list(handle)[1:]] == [1, 2, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, InvalidRecordError), (float("nan"), InvalidRecordError), ("1", RecordTypeError)],
)
def test_an_invalid_timeout_is_refused(timeout: Any, error: type[KprodError]) -> None:
    handle = handle_of((batch_of(0), 1))
    with pytest.raises(error, match="get: timeout must be seconds"):
        handle.get(timeout)


def test_a_bulk_delivery_can_be_awaited() -> None:
    cluster = cluster_of(3)

    async def main(producer: KafkaProducer) -> None:
        handles = [producer.send_many("t", VALUES) for _ in range(3)]
        reports = await asyncio.gather(*handles)
        assert [report.records for report in reports] == [100] * 3
        assert (await handles[0]).records == 100
        cluster.brokers[1].next(ApiKey.PRODUCE, refuse(INVALID_RECORD))
        with pytest.raises(DeliveryError):
            await producer.send_many("t", VALUES)
        cluster.brokers[1].next(ApiKey.PRODUCE, silence)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.send_many("t", VALUES)

    with producer_of(cluster, linger_ms=50_000) as producer:
        asyncio.run(main(producer))
        producer.close(timeout=0)


def test_an_interruption_at_the_end_of_a_call_has_the_delivery() -> None:
    """``finish`` runs again after an interruption, and its records are counted."""
    calls: list[None] = []
    sent = SentRecords()
    delivery = BulkDelivery(sent)

    def finish() -> None:
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt
        for index in range(2):
            sent.add(batch_of(0), index)

    with pytest.raises(KeyboardInterrupt) as raised, Accounted(delivery, finish):
        pass
    assert (raised.value.accepted, raised.value.delivery) == (2, delivery)  # type: ignore[attr-defined]
    assert "the first 2 records were queued" in raised.value.__notes__[0]


ROW_VALUES = [b"%0100d" % n for n in range(20_000)]
ROW_KEYS = [b"%d" % (n % 100) for n in range(20_000)]
ROWS = {"value": ROW_VALUES, "key": ROW_KEYS}

Call = Callable[[KafkaProducer], Any]
CALLS: dict[str, Call] = {
    "values": lambda producer: producer.send_many("t", ROW_VALUES),
    "keys": lambda producer: producer.send_many("t", ROW_VALUES, keys=ROW_KEYS),
    "few keys": lambda producer: producer.send_many("t", ROW_VALUES[:50], keys=ROW_KEYS[:50]),
    "arrow": lambda producer: producer.send_arrow("t", pa.record_batch(ROWS)),
    "arrow keys": lambda producer: producer.send_arrow("t", pa.record_batch(ROWS), key="key"),
}

CALLS_OF_A_BATCH = 10
"""To create its delivery, and to notify the sender."""
OTHER_CALLS = 250
"""To check the arguments and the topic, and to draw partitions."""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("partitions", [1, 6])
@pytest.mark.parametrize("flushed", [True, False])
def test_python_is_called_for_batches_only(name: str, partitions: int, flushed: bool) -> None:
    broker = ScriptedCluster(topics={"t": [1] * partitions}).add(1)
    with producer_before(broker.cluster, linger_ms=60_000) as producer:
        CALLS[name](producer)
        if flushed:  # else batches with room are open
            producer.flush(20)
        before = producer.metrics()["producer-metrics"]["batch-total"]
        calls = entered(lambda: CALLS[name](producer))
        producer.flush(20)
        batches = producer.metrics()["producer-metrics"]["batch-total"] - before
    assert calls <= OTHER_CALLS + CALLS_OF_A_BATCH * (batches + partitions)
