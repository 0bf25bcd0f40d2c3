"""confluent-kafka (librdkafka), as producer, consumer and admin, against the embedded broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
)

from kprod.admin import read_topic
from kprod.broker import EmbeddedBroker
from tests.support.committed_records import Stored, read_back

PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
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
"""Nulls, empty and large values, headers: typical error cases."""


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_confluent_kafka_are_read_back_unchanged(
    broker: EmbeddedBroker, codec: str, idempotent: bool
) -> None:
    servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("sent", PARTITIONS)])["sent"].result(20)
    options = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 20}
    producer = Producer({**servers, **options, "message.max.bytes": 1_048_000})
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    sent = []
    for number, (key, value, *rest) in enumerate(CONTENTS * 2):
        partition, timestamp = number % PARTITIONS, 1_700_000_000_000 + (number * 7919) % 1000
        headers = rest[0] if rest else ()
        fields: Any = {"partition": partition, "timestamp": timestamp, "headers": list(headers)}
        producer.produce("sent", value, key, on_delivery=delivered, **fields)
        sent.append(Stored(partition, number // PARTITIONS, timestamp, key, value, headers))
    assert producer.flush(30) == 0
    assert not errors
    expected = sorted(sent, key=lambda record: record[:2])
    assert read_back(broker.bootstrap_servers, "sent", PARTITIONS) == expected
    ours = read_topic(broker.bootstrap_servers, "sent")
    assert [Stored(number, *record) for number, record in ours] == expected
