"""Keys go where librdkafka puts them, for every hash that both have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

NAMES = [("murmur2_random", "default"), ("consistent_random", "crc32"), ("fnv1a_random", "fnv1a")]
PARTITIONS = {"seven": 7, "twelve": 12}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics=PARTITIONS) as broker:
        yield broker


def keys() -> list[bytes]:
    rng = random.Random(11)
    short = [bytes([byte]) for byte in range(0, 256, 5)]
    return [*short, *(rng.randbytes(rng.randrange(1, 40)) for _ in range(250))]


def chosen_by_librdkafka(broker: EmbeddedBroker, name: str, topic: str) -> dict[bytes, int]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": name})
    chosen: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        key, partition = message.key(), message.partition()
        assert error is None
        assert isinstance(key, bytes)
        assert partition is not None
        chosen[key] = partition

    for key in keys():
        producer.produce(topic, value=b"", key=key, on_delivery=delivered)
    assert producer.flush(30) == 0
    return chosen


@pytest.mark.parametrize("topic", PARTITIONS)
@pytest.mark.parametrize(("librdkafkas", "ours"), NAMES)
def test_keys_share_partitions(
    broker: EmbeddedBroker, librdkafkas: str, ours: Any, topic: str
) -> None:
    theirs = chosen_by_librdkafka(broker, librdkafkas, topic)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, partitioner=ours) as producer:
        futures = {key: producer.send(topic, b"", key=key) for key in keys()}
        producer.flush(timeout=30)
    assert {key: future.get(0).partition for key, future in futures.items()} == theirs
    assert set(theirs.values()) == set(range(PARTITIONS[topic]))
