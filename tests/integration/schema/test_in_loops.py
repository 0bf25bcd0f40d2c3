"""Schema registries in asyncio: the event loop is not blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kprod import aio
from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from kprod.schema import AvroSerializer, RegistryError, SchemaRegistry
from kprod.types import ProducerRecord
from tests.support.http_service import Asked
from tests.support.schema_registry import FakeRegistry


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        yield made


def options(broker: EmbeddedBroker, fake: FakeRegistry) -> dict[str, Any]:
    serializer = AvroSerializer(SchemaRegistry(fake.url), '"long"')
    return {"bootstrap_servers": broker.bootstrap_servers, "value_serializer": serializer}


class BlockedRegistry:
    def __init__(self, fake: FakeRegistry) -> None:
        self.asked, self._released = threading.Event(), threading.Event()
        fake.odd = self._hold

    def _hold(self, _: Asked) -> None:
        self.asked.set()
        self._released.wait(20)

    async def release(self) -> None:
        while not self.asked.is_set():
            await asyncio.sleep(0.01)
        self._released.set()


class Counting:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(record.topic)
        return record


@pytest.mark.parametrize("kind", [aio.Producer, aio.AIOKafkaProducer])
async def test_a_slow_registry_does_not_block_the_event_loop(
    broker: EmbeddedBroker, fake: FakeRegistry, kind: Any
) -> None:
    topic, hooks = f"blocked-{kind.__name__}", Counting()
    blocked = BlockedRegistry(fake)
    # If the loop were blocked, nothing would release the registry, and this would fail.
    registry = SchemaRegistry(fake.url, timeout_ms=5000)
    own = {"interceptors": [hooks]} if kind is aio.Producer else {}
    async with kind(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=AvroSerializer(registry, '"string"', is_key=True),
        value_serializer=AvroSerializer(registry, '"long"', id_in="header"),
        **own,
    ) as producer:
        sending = [producer.send_and_wait(topic, number, key="k") for number in range(3)]
        await asyncio.gather(blocked.release(), *sending)
    assert sorted(fake.subjects) == [f"{topic}-key", f"{topic}-value"]
    found = [record for _, record in read_topic(broker.bootstrap_servers, topic)]
    assert sorted(record.value or b"" for record in found) == [b"\0", b"\2", b"\4"]
    assert {record.key for record in found} == {b"\0\0\0\0\1\2k"}
    assert {record.headers for record in found} == {(("__value_schema_id", b"\0\0\0\0\2"),)}
    if kind is aio.Producer:
        assert hooks.seen == [topic] * 3


async def test_one_request_serves_a_bulk_call(broker: EmbeddedBroker, fake: FakeRegistry) -> None:
    async with aio.Producer(**options(broker, fake)) as producer:
        assert len(await producer.send_all("many", range(1000))) == 1000
        assert len(fake.asked) == 1
        fake.odd = lambda _: (422, {"message": "no"})
        with pytest.raises(RegistryError, match="invalid"):
            await producer.send("refused", 1)


async def test_a_batch_builder_refuses_values_that_need_a_topic(
    broker: EmbeddedBroker, fake: FakeRegistry
) -> None:
    async with aio.AIOKafkaProducer(**options(broker, fake)) as producer:
        batch = producer.create_batch()
        with pytest.raises(TypeError, match="a batch has no topic"):
            batch.append(key=None, value=7, timestamp=None)
    assert fake.asked == []
