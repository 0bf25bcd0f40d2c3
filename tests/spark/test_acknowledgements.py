"""The outcomes of a task's records are all seen, and kept no longer than needed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.delivery import BulkDelivery
from kprod.errors import BrokerError, DeliveryError, InvalidBatchError, KprodError
from kprod.schema.columns.record_plan import Rows, SendArguments
from kprod.spark.acknowledgements import LOOK_EVERY, MOST_PENDING, Acknowledgements
from kprod.spark.write_result import OffsetRange
from kprod.types import Persisted, TopicPartition
from kprod_ext import SentRecords
from kprod_ext.futures import FutureRecordMetadata

Part = tuple[BatchDelivery, int]
FLIGHTS_2 = TopicPartition("flights", 2)


def batch_of(topic_partition: TopicPartition = FLIGHTS_2) -> BatchDelivery:
    return BatchDelivery(topic_partition, expedite=lambda: None)


def send(outcomes: Acknowledgements, batch: BatchDelivery, count: int) -> None:
    """Records of 3 key bytes and 10 value bytes."""
    for index in range(count):
        outcomes.expect(FutureRecordMetadata(batch, index, 0, 3, 10, 0))


def call(*parts: Part) -> BulkDelivery:
    """A bulk call that added these numbers of records to the batches."""
    sent = SentRecords()
    for batch, count in parts:
        for index in range(count):
            sent.add(batch, index)
    return BulkDelivery(sent)


Send = Callable[..., None]


def singly(outcomes: Acknowledgements, *parts: Part) -> None:
    for batch, count in parts:
        send(outcomes, batch, count)


def in_bulk(outcomes: Acknowledgements, *parts: Part) -> None:
    outcomes.expect(call(*parts))


BOTH_WAYS = pytest.mark.parametrize("send_parts", [singly, in_bulk])


@BOTH_WAYS
def test_a_failed_record_is_reported_with_its_cause(send_parts: Send) -> None:
    outcomes = Acknowledgements(timeout=1)
    good, bad, unknown = (batch_of() for _ in range(3))
    send_parts(outcomes, (good, 2))
    send_parts(outcomes, (bad, 3), (unknown, 4))
    good.succeed(0, -1)
    bad.fail(BrokerError(10, "too large for flights"))
    with pytest.raises(DeliveryError) as caught:
        outcomes.finish()
    error = caught.value
    assert (error.acknowledged, error.failed, error.pending) == (2, 3, 4)
    assert error.topic_partition == FLIGHTS_2
    assert isinstance(error.__cause__, BrokerError)
    assert error.persisted is Persisted.MAYBE, "those without an outcome may be in the log"
    assert "first: flights-2: BrokerError: MESSAGE_TOO_LARGE (10): too large" in str(error)


@BOTH_WAYS
def test_a_failure_is_noticed_while_sending(send_parts: Send) -> None:
    outcomes = Acknowledgements(timeout=1)
    batch = batch_of()
    batch.fail(BrokerError(29))
    with pytest.raises(DeliveryError) as caught:
        send_parts(outcomes, (batch, LOOK_EVERY))
    assert caught.value.persisted is Persisted.NO
    assert (caught.value.failed, caught.value.pending) == (LOOK_EVERY, 0)
    assert isinstance(caught.value.__cause__, BrokerError)


@BOTH_WAYS
def test_too_many_pending_records_wait_for_the_oldest(send_parts: Send) -> None:
    outcomes = Acknowledgements(timeout=30)
    batch = batch_of()
    threading.Timer(0.1, batch.succeed, (0, -1)).start()
    for _ in range(MOST_PENDING // LOOK_EVERY + 1):
        send_parts(outcomes, (batch, LOOK_EVERY))
    assert batch.done, "it did not wait"
    outcomes.finish()
    assert outcomes.records == MOST_PENDING + LOOK_EVERY


@BOTH_WAYS
def test_records_without_an_outcome_do_not_pile_up(send_parts: Send) -> None:
    outcomes = Acknowledgements(timeout=0.05)
    batch = batch_of()
    for _ in range(MOST_PENDING // LOOK_EVERY - 1):
        send_parts(outcomes, (batch, LOOK_EVERY + 1))
    with pytest.raises(DeliveryError, match=r"first: flights-2: no outcome after 0.05 s"):
        send_parts(outcomes, (batch, LOOK_EVERY + 1))


def test_records_of_bulk_calls_are_counted_by_partition() -> None:
    outcomes = Acknowledgements(timeout=1)
    first, second, single = batch_of(), batch_of(), batch_of()
    elsewhere = batch_of(TopicPartition("flights", 0))
    outcomes.expect(call((first, 3), (elsewhere, 1)), None, 40)
    outcomes.expect(call((second, 2)), None, 2)
    send(outcomes, single, 1)
    second.succeed(90, -1)
    first.succeed(10, -1)
    elsewhere.succeed(-1, -1)
    single.succeed(500, -1)
    outcomes.finish()
    assert (outcomes.records, outcomes.bytes) == (7, 42 + 13)
    assert outcomes.ranges() == [
        OffsetRange(topic="flights", partition=0, first=-1, last=-1, records=1),
        OffsetRange(topic="flights", partition=2, first=10, last=500, records=6),
    ]


def test_bulk_calls_between_single_records_do_not_let_those_pile_up() -> None:
    outcomes = Acknowledgements(timeout=0.05)
    batch, done = batch_of(), batch_of()
    done.succeed(0, -1)

    def send_singly_and_in_bulk() -> None:
        for _ in range(MOST_PENDING + 1):
            send(outcomes, batch, 1)
            outcomes.expect(call((done, 1)), None, 1)

    with pytest.raises(DeliveryError, match="no outcome"):
        send_singly_and_in_bulk()


def test_small_bulk_calls_do_not_wait_for_each_other() -> None:
    outcomes = Acknowledgements(timeout=0.05)
    batch = batch_of()
    for _ in range(2 * MOST_PENDING // LOOK_EVERY):
        outcomes.expect(call((batch, 1)))


def row(number: int) -> SendArguments:
    return "flights", b"%d" % number, None, None, None, None


class ResendingTask:
    """A task that skips rows. ``again`` are the rows that it has resent, in ``batch``."""

    def __init__(self) -> None:
        self.again: list[bytes] = []
        self.batch = batch_of()
        self.outcomes = Acknowledgements(1, self._send)

    def _send(self, arguments: SendArguments, error: KprodError) -> bool:
        future = FutureRecordMetadata(self.batch, len(self.again), 0, 3, 10, 0)
        self.again.append(arguments[1])
        self.outcomes.expect(future, row(len(self.again)))
        return isinstance(error, InvalidBatchError)

    def flush(self) -> None:
        if self.again:
            self.batch.succeed(100, -1)


@pytest.mark.parametrize("count", [3, 3 * LOOK_EVERY])
@pytest.mark.parametrize("in_a_call", [False, True])
def test_rows_that_shared_a_refused_batch_are_sent_again_once(count: int, in_a_call: bool) -> None:
    task, refused = ResendingTask(), batch_of()
    if in_a_call:
        values = [b"%d" % index for index in range(count)]
        rows = Rows("flights", pa.RecordBatch.from_pydict({"value": values}))
        task.outcomes.expect(call((refused, count)), rows, rows.nbytes)
    else:
        for index in range(count):
            future = FutureRecordMetadata(refused, index, 0, 3, 10, 0)
            task.outcomes.expect(future, row(index))
    refused.fail(InvalidBatchError("because of others"))
    task.outcomes.finish(task.flush)
    assert task.again == [b"%d" % index for index in range(count)]
    assert (task.outcomes.records, task.outcomes.sent) == (count, count)
