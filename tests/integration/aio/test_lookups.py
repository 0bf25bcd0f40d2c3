"""Look-ups of topics are shared, end as soon as they can, and outlive whoever gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.aio import AIOKafkaProducer, Producer
from kprod.aio.lookups import TopicLookups
from kprod.broker import EmbeddedBroker
from kprod.errors import (
    BrokerError,
    InvalidTopicError,
    KprodTimeoutError,
    PartitionError,
    ProducerClosedError,
)

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
