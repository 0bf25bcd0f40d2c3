"""Batches that an application builds itself: create_batch() and send_batch()."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiokafka.errors as aiokafka_errors
import pytest

from kprod.aio import AIOKafkaProducer
from kprod.aio.aiokafka_producer import RecordMetadata
from kprod.aio.record_batch import RecordBatch, first_stored
from kprod.broker import EmbeddedBroker
from kprod.broker.faults import Fault
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import BrokerError
from kprod.types import Persisted
from kprod_ext import RecordClock, batch_size_upper_bound
from kprod_ext.aio import MOST
from tests.integration.aio.conftest import Make

BROKER = {"topics": {"t": 2}}

DENIED = 29  # TOPIC_AUTHORIZATION_FAILED
TOO_LARGE = 10  # MESSAGE_TOO_LARGE


def new_batch(limit: int = 1_000) -> RecordBatch:
    return RecordBatch(limit, RecordClock(lambda: 7))


def test_the_size_of_a_batch_is_the_upper_bound_of_its_records() -> None:
    batch = new_batch()
    empty = batch.size()
    headers = [("h", None), ("name", b"value")]
    appended = batch.append(key=b"k" * 200, value=b"v", timestamp=None, headers=headers)
    assert appended is not None
    assert (appended.timestamp, empty + appended.size) == (7, batch.size())
    assert batch.size() == batch_size_upper_bound(b"k" * 200, b"v", headers)


def test_a_batch_that_refused_a_record_is_closed() -> None:
    batch = new_batch(200)
    assert batch.append(key=None, value=bytes(300), timestamp=None) is not None  # the first
    assert batch.append(key=None, value=b"", timestamp=None) is None
    assert batch.closed()
    assert batch.record_count() == 1


def test_append_copies_buffers_of_the_application() -> None:
    batch, buffer = new_batch(), bytearray(b"one")
    for number in (b"one", b"two"):
        buffer[:] = number
        view: Any = memoryview(buffer)
        batch.append(key=view, value=buffer, timestamp=1, headers=[("h", view)])
        view.release()
    buffer += b"may grow"  # fails while a view is held
    assert [(r.key, r.value, r.headers) for r in batch.records] == [
        (number, number, (("h", number),)) for number in (b"one", b"two")
    ]


@pytest.mark.parametrize(
    ("invalid", "error"),
    [
        ({"timestamp": -1}, ValueError),
        ({"timestamp": 2**70}, ValueError),
        ({"timestamp": "now"}, TypeError),
        ({"timestamp": float("nan")}, TypeError),
        ({"headers": [("h", "text")]}, TypeError),
        ({"headers": [("h",)]}, TypeError),
        ({"value": bytes(600)}, aiokafka_errors.MessageSizeTooLargeError),
        ({"value": 5}, TypeError),
    ],
)
async def test_append_refuses_invalid_records(
    broker: EmbeddedBroker, make: Make, invalid: Any, error: type[Exception]
) -> None:
    async with make(max_request_size=500) as producer:
        batch = producer.create_batch()
        valid: dict[str, Any] = {"key": None, "value": b"1", "timestamp": 1000}
        batch.append(**valid)
        with pytest.raises(error):
            batch.append(**{**valid, **invalid})
        assert (batch.record_count(), batch.closed()) == (1, False)
        batch.append(**{**valid, "timestamp": 1000.9})  # aiokafka accepts it
        await (await producer.send_batch(batch, "t", partition=0))
    assert [(r.value, r.timestamp) for r in broker.records("t")] == [(b"1", 1000)] * 2


async def test_the_future_of_a_batch_fails_if_its_last_record_fails(
    broker: EmbeddedBroker, make: Make
) -> None:
    """Its first record fits into the open batch, the others go into the next."""
    async with make(max_batch_size=1_000, linger_ms=60_000) as producer:
        await producer.partitions_for("t")
        denied = broker.faults.add(Fault(api=ApiKey.PRODUCE, after=1, error=DENIED, times=None))
        before = await producer.send("t", bytes(600), partition=0)
        batch = producer.create_batch()
        for _ in range(3):
            assert batch.append(key=None, value=bytes(200), timestamp=None)
        future = await producer.send_batch(batch, "t", partition=0)
        await producer.flush()
        assert await before
        with pytest.raises(aiokafka_errors.TopicAuthorizationFailedError):
            await future
        broker.faults.remove(denied)
    assert len(broker.records("t")) == 2


REFUSED = Fault(api=ApiKey.PRODUCE, error=6, times=None)  # NOT_LEADER_OR_FOLLOWER, repeatedly
SMALL: dict[str, Any] = {"buffer_memory": 20_000, "max_batch_size": 10_000, "linger_ms": 20}


async def without_memory(producer: AIOKafkaProducer) -> RecordBatch:
    """A batch of which only some records fit into the open batch of the partition.

    No memory is left for another until brokers accept records again.
    """
    await producer.partitions_for("t")
    for partition in (0, 1):
        await producer.send("t", bytes(5_000), partition=partition)
    batch = producer.create_batch()
    for number in range(9):
        assert batch.append(key=b"%d" % number, value=bytes(1_000), timestamp=None)
    return batch


def keys(broker: EmbeddedBroker) -> list[bytes | None]:
    return [record.key for record in broker.records("t") if record.key]


ALL = [b"%d" % number for number in range(9)]


async def test_a_batch_cancelled_while_waiting_for_memory_is_sent_as_a_whole_or_not_at_all(
    broker: EmbeddedBroker, make: Make
) -> None:
    async with make(**SMALL) as producer:
        with broker.faults.active(REFUSED):
            batch = await without_memory(producer)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send_batch(batch, "t", partition=0), 0.1)
        await (await producer.send_batch(batch, "t", partition=0))
    assert keys(broker) == ALL


async def test_a_batch_refused_for_lack_of_memory_leaves_nothing_queued(
    broker: EmbeddedBroker, make: Make
) -> None:
    async with make(request_timeout_ms=300, delivery_timeout_ms=60_000, **SMALL) as producer:
        with broker.faults.active(REFUSED):
            batch = await without_memory(producer)
            with pytest.raises(aiokafka_errors.KafkaTimeoutError, match="buffer_memory") as caught:
                await producer.send_batch(batch, "t", partition=0)
            assert caught.value.persisted is Persisted.NO
        await producer.flush()
        await (await producer.send_batch(batch, "t", partition=0))
    assert keys(broker) == ALL


MANY = 5 * MOST  # more than one iteration of the loop queues
NUMBERS = [b"%d" % number for number in range(MANY)]


def large(producer: AIOKafkaProducer) -> RecordBatch:
    batch = producer.create_batch()
    for number in NUMBERS:
        assert batch.append(key=None, value=number, timestamp=None)
    return batch


async def test_records_sent_after_a_batch_follow_it(broker: EmbeddedBroker, make: Make) -> None:
    async with make(max_batch_size=500_000) as producer:
        for _ in range(2):
            await producer.send_batch(large(producer), "t", partition=0)
            await producer.send("t", b"one", partition=0)
            metadata = await producer.send_and_wait("t", b"another", partition=0)
            assert metadata is not None
    assert [r.value for r in broker.records("t")] == [*NUMBERS, b"one", b"another"] * 2


async def test_stop_and_flush_wait_for_whole_batches(broker: EmbeddedBroker, make: Make) -> None:
    async with make(max_batch_size=500_000) as producer:
        (await producer.send_batch(large(producer), "t", partition=0)).cancel()
        await producer.flush()
        assert len(broker.records("t")) == MANY
        await producer.send_batch(large(producer), "t", partition=0)
    assert [r.value for r in broker.records("t")] == NUMBERS * 2


async def test_a_split_batch_fails_if_one_part_fails(broker: EmbeddedBroker, make: Make) -> None:
    async with make(enable_idempotence=True, linger_ms=60_000) as producer:
        await producer.partitions_for("t")
        batch = producer.create_batch()
        for number in NUMBERS[:10]:
            assert batch.append(key=None, value=number * 100, timestamp=None)
        broker.faults.add(Fault(api=ApiKey.PRODUCE, error=TOO_LARGE, times=1))
        broker.faults.add(Fault(api=ApiKey.PRODUCE, error=DENIED, after=1, times=5))
        future = await producer.send_batch(batch, "t", partition=0)
        await producer.flush()
        with pytest.raises(aiokafka_errors.TopicAuthorizationFailedError) as caught:
            await future
        assert caught.value.persisted is Persisted.MAYBE
    assert len(broker.records("t")) == 5


async def test_the_future_of_a_batch_fails_if_its_rest_is_refused(
    broker: EmbeddedBroker, make: Make
) -> None:
    producer = make(max_batch_size=500_000)
    await producer.partitions_for("t")
    future = await producer.send_batch(large(producer), "t", partition=0)
    native = producer.__kprod_producer__
    assert native is not None
    native.close()  # blocks the loop, so that no more is queued
    with pytest.raises(aiokafka_errors.ProducerClosed):
        await future
    assert 0 < len(broker.records("t")) < MANY
    await producer.stop()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_partly_cancelled_batch_is_not_committed(
    broker: EmbeddedBroker, make: Make, begun: bool
) -> None:
    """Programs cancel all tasks when they end."""
    async with make(max_batch_size=500_000, transactional_id="x") as producer:
        await producer.begin_transaction()
        future = await producer.send_batch(large(producer), "t", partition=0)
        if begun:
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(aiokafka_errors.KafkaError, match="queued in part"):
            await producer.commit_transaction()
        assert future.cancelled()
        await producer.abort_transaction()
    assert broker.records("t", committed=True) == []


async def test_batches_of_tasks_are_not_interleaved(broker: EmbeddedBroker, make: Make) -> None:
    async with make(max_batch_size=500_000) as producer:
        await producer.partitions_for("t")
        sends = [producer.send_batch(large(producer), "t", partition=0) for _ in range(3)]
        await asyncio.gather(*await asyncio.gather(*sends))
    assert [r.value for r in broker.records("t")] == NUMBERS * 3


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
async def test_a_transaction_contains_whole_batches_only(
    broker: EmbeddedBroker, make: Make, call: str
) -> None:
    sent: list[asyncio.Future[Any]] = []
    results: list[Any] = []
    async with make(max_batch_size=500_000, transactional_id="x") as producer:

        async def send_batches() -> None:
            while True:
                sent.append(await producer.send_batch(large(producer), "t", partition=0))

        await producer.begin_transaction()
        tasks = [asyncio.create_task(send_batches()) for _ in range(3)]
        await asyncio.sleep(0.1)
        await getattr(producer, call)()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error).__name__ for error in ended} == {"IllegalOperation"}
        results.extend(await asyncio.gather(*sent, return_exceptions=True))
    if call == "commit_transaction":
        assert all(isinstance(result, RecordMetadata) for result in results)
        assert [r.value for r in broker.records("t", committed=True)] == NUMBERS * len(results)
    else:
        assert broker.records("t", committed=True) == []


@pytest.mark.parametrize("call", ["stop", "flush"])
async def test_stop_and_flush_return_while_a_task_sends_batches(make: Make, call: str) -> None:
    async with make(max_batch_size=500_000) as producer:

        async def send_forever() -> None:
            while True:
                await producer.send_batch(large(producer), "t", partition=0)

        sending = asyncio.create_task(send_forever())
        await asyncio.sleep(0.1)
        await asyncio.wait_for(getattr(producer, call)(), 30)
        if call == "flush":
            assert not sending.done()
            sending.cancel()
        with suppress(asyncio.CancelledError, aiokafka_errors.KafkaError):
            await sending


def test_the_error_of_a_batch_says_whether_any_record_may_be_stored() -> None:
    refused = BrokerError(DENIED)
    with pytest.raises(BrokerError) as caught:
        first_stored([refused, refused])
    assert caught.value.persisted is Persisted.NO
    with pytest.raises(BrokerError) as caught:
        first_stored([None, refused])
    assert caught.value.persisted is Persisted.MAYBE
    assert refused.persisted is Persisted.NO
    assert first_stored([1, 2]) == 1
