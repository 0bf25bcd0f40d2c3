"""confluent-kafka (librdkafka), as producer, consumer and admin, against the embedded broker."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
)

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from tests.support.confluent_consumer import confluent_consumer

PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Record(NamedTuple):
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


CONTENTS: list[Any] = [
    (b"key", b"value"),
    (None, b"no key"),
    (b"tombstone", None),
    (None, None),
    (b"", b""),
    (b"headers", b"v", (("a", b"1"), ("a", b"2"), ("empty", b""), ("ümlaut", b"\xff\x00"))),
    (b"null header", b"v", (("none", None),)),
    (b"\x00\xff" * 50, bytes(range(256)) * 40),
    (b"one megabyte", b"m" * 1_000_000),
    *((b"k%d" % n, b"v%d" % n * n) for n in range(40)),
]
"""Nulls, empties, headers, large values: what a careless writer, broker or reader gets wrong."""
RECORDS = [
    Record(n % PARTITIONS, 1_700_000_000_000 + (n * 7919) % 1000, *content)  # times go back, too
    for n, content in enumerate(CONTENTS * 2)
]


def by_partition(records: list[Record]) -> list[list[Record]]:
    return [[r for r in records if r.partition == number] for number in range(PARTITIONS)]


def send_all(broker: EmbeddedBroker, topic: str, **options: object) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, **options}
    producer = Producer({**settings, "message.max.bytes": 1_048_000})
    problems: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            problems.append(error)

    for record in RECORDS:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            timestamp=record.timestamp,
            headers=list(record.headers),
            on_delivery=delivered,
        )
    assert producer.flush(30) == 0
    assert not problems


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[Record]:
    consumer = confluent_consumer(broker.bootstrap_servers)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Record] = []
    try:
        while len(found) < count:
            for message in consumer.consume(count, 1.0):
                assert message.error() is None
                found.append(as_record(message))
    finally:
        consumer.close()
    return found


def as_record(message: Message) -> Record:
    partition = message.partition()
    assert partition is not None
    headers: Any = tuple(message.headers() or ())
    return Record(partition, message.timestamp()[1], message.key(), message.value(), headers)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_what_it_sends_it_gets_back(broker: EmbeddedBroker, codec: str, idempotent: bool) -> None:
    topic = f"sent-{codec}-{idempotent}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(20)
    options = {"compression.type": codec, "enable.idempotence": idempotent}
    send_all(broker, topic, **options)
    sent = by_partition(RECORDS)
    assert by_partition(consume(broker, topic, len(RECORDS))) == sent

    stored: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for number, record in read_topic(broker.bootstrap_servers, topic):
        assert record.offset == len(stored[number])
        stored[number].append(Record(number, *record[1:]))
    assert stored == sent
