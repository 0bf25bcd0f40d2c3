"""An asyncio program waits for the records of a whole producer, whatever becomes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kprod import KafkaProducer, RecordMetadata
from kprod.buffer.delivery import BatchDelivery
from kprod.types import TopicPartition
from kprod_ext.futures import FutureRecordMetadata
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster
from tests.support.scripted_producer import producer_before

LONG = 20.0


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedCluster(topics={"t": [1, 1]}).add(1)


@pytest.fixture
def producer(broker: ScriptedBroker) -> Iterator[KafkaProducer]:
    made = producer_before(broker.cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
    made.send("t", b"before", partition=0).get(LONG)
    yield made
    made.close(0)


async def outcome_of(future: FutureRecordMetadata) -> RecordMetadata:
    return await future


def test_a_thousand_tasks_send_and_wait_without_lingering(producer: KafkaProducer) -> None:
    async def send(number: int) -> RecordMetadata:
        return await producer.send("t", b"%d" % number, partition=number % 2)

    async def run() -> list[RecordMetadata]:
        return await asyncio.wait_for(asyncio.gather(*map(send, range(1000))), LONG)

    stored = asyncio.run(run())
    for partition, first in ((0, 1), (1, 0)):
        offsets = [told.offset for told in stored if told.partition == partition]
        assert offsets == list(range(first, first + 500))


def test_no_wake_up_is_lost_between_asking_and_settling() -> None:
    async def run() -> None:
        for _ in range(300):
            delivery = BatchDelivery(TopicPartition("t", 0), lambda: None)
            start = threading.Barrier(2)

            def settle(
                start: threading.Barrier = start, delivery: BatchDelivery = delivery
            ) -> None:
                start.wait(LONG)
                delivery.succeed(0, -1)

            settler = threading.Thread(target=settle)
            settler.start()
            futures = [FutureRecordMetadata(delivery, index, 0, 0, 0, -1) for index in range(3)]
            start.wait(LONG)
            told = await asyncio.wait_for(asyncio.gather(*futures), LONG)
            assert [stored.offset for stored in told] == [0, 1, 2]
            settler.join(LONG)

    asyncio.run(run())
