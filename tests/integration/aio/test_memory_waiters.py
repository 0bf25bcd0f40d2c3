"""Many tasks that wait for memory or topics: wake-ups, order and the end of waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.aio import AIOKafkaProducer, Producer
from kprod.aio.lookups import TopicLookups
from kprod.aio.memory_waiters import MemoryWaiters
from kprod.aio.queueing import Queueing, Record
from kprod.broker import EmbeddedBroker
from kprod.broker.faults import Fault
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import (
    BrokerError,
    BufferFullError,
    KprodTimeoutError,
    PartitionError,
    ProducerClosedError,
)
from kprod_ext.aio import TURN, OutcomeNotifier
from tests.support.tier import one_of

BROKER = {"topics": {"t": 2}}

TASKS = 2_000
VALUE = bytes(1_000)


class Counting(KafkaProducer):
    """Counts attempts to queue a record."""

    attempts = 0

    def send(self, *args: Any, **kwargs: Any) -> Any:
        self.attempts += 1
        return super().send(*args, **kwargs)


def queueing(broker: EmbeddedBroker, longest: float) -> Queueing:
    native = Counting(
        bootstrap_servers=broker.bootstrap_servers, buffer_memory=65_536, max_block_ms=0
    )
    return Queueing(native, longest, partial(OutcomeNotifier, renews=True))


async def test_a_completed_batch_wakes_only_some_waiting_tasks(broker: EmbeddedBroker) -> None:
    queue = queueing(broker, 60.0)
    queued = await asyncio.gather(*(queue.put(Record("t", VALUE)) for _ in range(TASKS)))
    await queue.elsewhere(partial(queue.native.close, 60), "close")
    assert isinstance(queue.native, Counting)
    assert all(record.succeeded() for record in queued)
    # One fails, one succeeds, and a few for each batch.
    assert queue.native.attempts < 3 * TASKS


async def test_tasks_without_memory_fail_at_their_deadline(broker: EmbeddedBroker) -> None:
    broker.faults.add(Fault(api=ApiKey.PRODUCE, drop=True, times=None))
    queue = queueing(broker, 0.5)
    await queue.topic("t", 30)
    sends = [queue.put(Record("t", VALUE)) for _ in range(300)]
    outcomes = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 60)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BufferFullError)]
    assert 100 < len(refused) < 300
    await queue.elsewhere(partial(queue.native.close, 0), "close")


async def test_a_cancelled_waiter_wakes_the_next() -> None:
    waiters = MemoryWaiters(lambda: None)
    assert not waiters
    later = asyncio.get_running_loop().time() + 60
    waits = [asyncio.ensure_future(waiters.wait(later)) for _ in range(2 * TURN)]
    await asyncio.sleep(0)
    assert waiters
    for wait in waits[:TURN]:
        wait.cancel()
    await asyncio.wait_for(asyncio.gather(*waits[TURN:]), 60)
    assert not waiters


async def test_waiters_keep_waiting_if_the_first_found_no_memory() -> None:
    waiters = MemoryWaiters(lambda: None)
    loop = asyncio.get_running_loop()

    async def finds_no_memory() -> None:
        await waiters.wait(loop.time() + 59)
        waiters.found_none()

    first = asyncio.ensure_future(finds_no_memory())
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(waiters.wait(loop.time() + 60)) for _ in range(3)]
    await first
    assert not any(other.done() for other in others)
    await asyncio.wait_for(asyncio.gather(*others), 60)


@pytest.mark.parametrize("kind", one_of(Producer, AIOKafkaProducer))
async def test_tasks_get_memory_in_the_order_of_their_calls(kind: Any) -> None:
    """Tasks woken by a topic look-up do not overtake those waiting for memory."""
    for _ in range(5):
        with EmbeddedBroker(topics={"t": 1}) as broker:
            options = {"bootstrap_servers": broker.bootstrap_servers, "buffer_memory": 100_000}
            async with kind(**options) as producer:
                tasks = [producer.send("t", b"%d" % n, headers=[("h", VALUE)]) for n in range(600)]
                await asyncio.gather(*tasks)
            assert [int(record.value or b"") for record in broker.records("t")] == list(range(600))


@pytest.mark.parametrize(
    "kind",
    one_of(
        Producer,
        AIOKafkaProducer,
        partial(AIOKafkaProducer, partitioner=lambda key, every, available: 0),
    ),
    ids=["Producer", "AIOKafkaProducer", "own partitioner"],
)
async def test_no_task_overtakes_one_that_waits_for_the_topic(kind: Any) -> None:
    """Topics become known one by one while tasks wait for a later iteration of the loop."""
    topics = [f"fresh-{number}" for number in range(4)]
    with EmbeddedBroker(topics=dict.fromkeys(topics, 1)) as broker:
        async with kind(bootstrap_servers=broker.bootstrap_servers) as producer:
            for topic in topics:
                tasks: list[asyncio.Task[Any]] = []
                for count in [700, *[7] * 100]:
                    numbers = range(len(tasks), len(tasks) + count)
                    tasks += [asyncio.create_task(producer.send(topic, b"%d" % n)) for n in numbers]
                    await asyncio.sleep(0)
                await asyncio.gather(*await asyncio.gather(*tasks))
        for topic in topics:
            values = [int(record.value or b"") for record in broker.records(topic)]
            assert values == sorted(values)


async def test_a_cancelled_send_does_not_block_the_next(broker: EmbeddedBroker) -> None:
    queue = queueing(broker, 60.0)
    puts = [asyncio.ensure_future(queue.put(Record("t", VALUE))) for _ in range(200)]
    await asyncio.sleep(0)
    for put in puts[::2]:
        put.cancel()
    await asyncio.gather(*puts, return_exceptions=True)
    assert all(not put.cancelled() for put in puts[1::2])
    assert not queue.lines.by_topic
    await queue.elsewhere(partial(queue.native.close, 60), "close")
    assert len(broker.records("t")) == 100


def test_a_send_of_a_closed_loop_does_not_block_another_loop(broker: EmbeddedBroker) -> None:
    queue = queueing(broker, 60.0)
    ended = asyncio.new_event_loop()
    ended.set_exception_handler(lambda *_: None)  # it would log the pending task
    left = ended.create_task(queue.put(Record("t", VALUE)))
    while not queue.lines.by_topic:
        ended.run_until_complete(asyncio.sleep(0))
    ended.close()

    async def main() -> None:
        await asyncio.wait_for(queue.put(Record("t", VALUE)), 30)
        await queue.elsewhere(partial(queue.native.close, 60), "close")

    asyncio.run(main())
    assert not left.done()


LONG = 30.0


@pytest.fixture(scope="module")
def native() -> Iterator[KafkaProducer]:
    with (
        EmbeddedBroker(topics={"found": 2}, auto_create_topics=False) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        yield producer


async def test_a_lookup_that_cannot_succeed_raises_immediately(native: KafkaProducer) -> None:
    lookups = TopicLookups(native.metadata)
    with pytest.raises(BrokerError, match="17"):
        await lookups.find("no name of a topic", None, LONG)
    with pytest.raises(PartitionError):
        await lookups.find("found", 7, LONG)


async def test_closing_the_producer_ends_lookups() -> None:
    with EmbeddedBroker(topics={"t": 1}, auto_create_topics=False) as broker:
        native = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        lookups = TopicLookups(native.metadata)
        task = asyncio.ensure_future(lookups.find("missing", None, LONG))
        await asyncio.sleep(0)
        await asyncio.to_thread(native.close)
        with pytest.raises(ProducerClosedError):
            await task
        with pytest.raises(ProducerClosedError):
            await lookups.find("missing", None, LONG)


async def test_tasks_that_share_a_lookup_get_their_own_error_each(native: KafkaProducer) -> None:
    lookups = TopicLookups(native.metadata)
    tasks = [asyncio.ensure_future(lookups.find("missing", None, 0.1)) for _ in range(300)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    first, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert all(isinstance(error, KprodTimeoutError) for error in others)
    assert len(set(map(id, others))) == 299


@pytest.mark.parametrize(("first", "second"), [(0.05, LONG), (LONG, 0.05)])
async def test_tasks_that_share_a_lookup_have_their_own_timeouts(
    first: float, second: float
) -> None:
    """The short one expires; the long one finds the topic once it exists."""
    with (
        EmbeddedBroker(auto_create_topics=False) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as native,
    ):
        lookups = TopicLookups(native.metadata)
        tasks = [
            asyncio.ensure_future(lookups.find("later", None, seconds))
            for seconds in (first, second)
        ]
        short, long = tasks if first < second else reversed(tasks)
        with pytest.raises(KprodTimeoutError, match=r"within 0\.05 s"):
            await short
        assert not long.done()
        broker.create_topic("later", 3)
        assert len(await long) == 3


def test_a_lookup_of_a_closed_loop_does_not_block_another_loop(native: KafkaProducer) -> None:
    lookups = TopicLookups(native.metadata)

    async def leave() -> None:
        task = asyncio.ensure_future(lookups.find("later", None, 0.3))
        await asyncio.sleep(0)
        assert not task.done()

    async def find() -> None:
        with pytest.raises(KprodTimeoutError):
            await lookups.find("later", None, 0.1)

    for run in (leave, find):
        asyncio.run(run())
