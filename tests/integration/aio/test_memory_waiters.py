"""What many tasks wait for: memory and topics, how often they look, and how their waits end."""

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
    InvalidTopicError,
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
    """Counts how often a record was tried to be queued."""

    attempts = 0

    def send(self, *args: Any, **kwargs: Any) -> Any:
        self.attempts += 1
        return super().send(*args, **kwargs)


def queueing(broker: EmbeddedBroker, longest: float) -> Queueing:
    native = Counting(
        bootstrap_servers=broker.bootstrap_servers, buffer_memory=65_536, max_block_ms=0
    )
    return Queueing(native, longest, partial(OutcomeNotifier, renews=True))


async def test_tasks_do_not_all_look_whenever_a_batch_ends(broker: EmbeddedBroker) -> None:
    queue = queueing(broker, 60.0)
    queued = await asyncio.gather(*(queue.put(Record("t", VALUE)) for _ in range(TASKS)))
    await queue.elsewhere(partial(queue.native.close, 60), "close")
    assert isinstance(queue.native, Counting)
    assert all(record.succeeded() for record in queued)
    # One in vain, one that succeeds, and a few for each batch.
    assert queue.native.attempts < 3 * TASKS


async def test_tasks_that_find_no_memory_are_told_at_their_deadline(broker: EmbeddedBroker) -> None:
    broker.faults.add(Fault(api=ApiKey.PRODUCE, drop=True, times=None))
    queue = queueing(broker, 0.5)
    await queue.topic("t", 30)
    sends = [queue.put(Record("t", VALUE)) for _ in range(300)]
    outcomes = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 60)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BufferFullError)]
    assert 100 < len(refused) < 300
    await queue.elsewhere(partial(queue.native.close, 0), "close")


async def test_a_task_that_is_cancelled_makes_room_for_the_next() -> None:
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


async def test_those_let_through_when_there_is_none_wait_on() -> None:
    waiters = MemoryWaiters(lambda: None)
    loop = asyncio.get_running_loop()

    async def looks_in_vain() -> None:
        await waiters.wait(loop.time() + 59)
        waiters.found_none()

    first = asyncio.ensure_future(looks_in_vain())
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(waiters.wait(loop.time() + 60)) for _ in range(3)]
    await first
    assert not any(other.done() for other in others)
    await asyncio.wait_for(asyncio.gather(*others), 60)


def test_those_of_a_loop_that_has_ended_are_forgotten() -> None:
    waiters = MemoryWaiters(lambda: None)

    async def left_behind() -> None:
        wait = asyncio.ensure_future(waiters.wait(asyncio.get_running_loop().time() + 60))
        await asyncio.sleep(0)
        assert not wait.done()

    async def in_another() -> None:
        assert not waiters
        await asyncio.wait_for(waiters.wait(asyncio.get_running_loop().time() + 60), 60)

    asyncio.run(left_behind())
    asyncio.run(in_another())


@pytest.mark.parametrize("kind", one_of(Producer, AIOKafkaProducer))
async def test_tasks_are_served_in_the_order_of_asking(kind: Any) -> None:
    """Those that the look-up of a topic wakes do not overtake those that wait for memory."""
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
async def test_no_task_overtakes_one_that_has_waited_for_the_topic(kind: Any) -> None:
    """One topic after the other becomes known while tasks wait for a later turn of the loop."""
    topics = [f"fresh-{number}" for number in range(4)]
    with EmbeddedBroker(topics=dict.fromkeys(topics, 1)) as broker:
        async with kind(bootstrap_servers=broker.bootstrap_servers) as producer:
            for topic in topics:
                tasks: list[asyncio.Task[Any]] = []
                for wave in [700, *[7] * 100]:
                    numbers = range(len(tasks), len(tasks) + wave)
                    tasks += [asyncio.create_task(producer.send(topic, b"%d" % n)) for n in numbers]
                    await asyncio.sleep(0)
                await asyncio.gather(*await asyncio.gather(*tasks))
        for topic in topics:
            values = [int(record.value or b"") for record in broker.records(topic)]
            assert values == sorted(values)


async def test_a_task_that_gives_up_lets_the_next_one_go_on(broker: EmbeddedBroker) -> None:
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


def test_a_task_of_a_loop_that_has_ended_is_before_no_other(broker: EmbeddedBroker) -> None:
    queue = queueing(broker, 60.0)
    ended = asyncio.new_event_loop()
    ended.set_exception_handler(lambda *_: None)  # it would tell of the task that is left
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
        EmbeddedBroker(
            topics={f"found-{n}": 2 for n in range(40)}, auto_create_topics=False
        ) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        yield producer


async def test_many_topics_are_found_at_once(native: KafkaProducer) -> None:
    lookups = TopicLookups(native.metadata)
    found = await asyncio.gather(*(lookups.find(f"found-{n}", 1, LONG) for n in range(40)))
    assert [len(one) for one in found] == [2] * 40


async def test_what_the_cluster_refuses_for_good_is_told_at_once(native: KafkaProducer) -> None:
    lookups = TopicLookups(native.metadata)
    with pytest.raises(BrokerError, match="17"):
        await lookups.find("no name of a topic", None, LONG)
    with pytest.raises(PartitionError):
        await lookups.find("found-0", 7, LONG)


@pytest.mark.parametrize("call", ["partitions_for", "send"])
@pytest.mark.parametrize("kind", [AIOKafkaProducer, Producer])
async def test_a_topic_that_no_request_can_name_is_not_looked_up(
    servers: str, kind: Any, call: str
) -> None:
    own = {"partitioner": lambda key, every, available: 0}  # which looks the topic up first
    async with kind(bootstrap_servers=servers, **own) as producer:
        given = ("\ud800", b"v") if call == "send" else ("\ud800",)
        with pytest.raises(InvalidTopicError):
            await getattr(producer, call)(*given)
        await producer.send_and_wait("t", b"v")


async def test_a_producer_that_closes_ends_them() -> None:
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


async def test_those_that_share_a_look_up_get_an_error_each(native: KafkaProducer) -> None:
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
async def test_those_that_share_a_look_up_have_a_time_limit_each(
    first: float, second: float
) -> None:
    """The short one ends by its own, the long one goes on and finds the topic once it is there."""
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


def test_what_a_loop_left_behind_holds_up_no_other(native: KafkaProducer) -> None:
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
