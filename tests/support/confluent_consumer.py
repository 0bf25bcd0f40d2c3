"""librdkafka's consumer, for tests of brokers."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer


def confluent_consumer(servers: str, *topics: str, group: str = "g", **options: Any) -> Consumer:
    """A consumer of ``topics`` from their beginning; ``options`` use underscores for dots."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    if topics:
        consumer.subscribe(list(topics))
    return consumer


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), 1.0):
            assert message.error() is None
            found.append(message.value())
    return found
