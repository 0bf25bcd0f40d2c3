"""Reading back with confluent-kafka: a consumer that is not ours decides what is in the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, Consumer, Message
from confluent_kafka import TopicPartition as ConfluentPartition


class Stored(NamedTuple):
    """One record as the judge sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_back(
    bootstrap: str, topic: str, partitions: int, seconds: float = 30.0, *, at_least: int = 0
) -> list[Stored]:
    """Every record of the topic, by partition and offset; otherwise like ``read_each``."""
    found = read_each(bootstrap, topic, partitions, seconds, at_least=at_least)
    return sorted(found, key=lambda record: (record.partition, record.offset))


def read_each(
    bootstrap: str, topic: str, partitions: int, seconds: float = 30.0, *, at_least: int = 0
) -> Iterator[Stored]:
    """Every record of the topic, those of a partition by offset; AssertionError when it stalls.

    ``at_least`` so many are waited for: a busy Tansu may tell of an end that has moved meanwhile.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8_000_000,
            "check.crcs": True,
        }
    )
    try:
        assigned = [ConfluentPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
        ends = {}
        for tp in assigned:
            low, high = consumer.get_watermark_offsets(tp, timeout=120)
            ends[tp.partition] = high - low
        consumer.assign(assigned)
        count = 0
        deadline = time.monotonic() + seconds
        wanted = max(sum(ends.values()), at_least)
        while count < wanted:
            assert time.monotonic() < deadline, f"{count} of {wanted} records read"
            for message in consumer.consume(10_000, timeout=0.2):
                count += 1
                yield _stored(message)
    finally:
        consumer.close()


def _stored(message: Message) -> Stored:
    assert message.error() is None, message.error()
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    # The stub also knows the forms that headers() accepts; what it returns is a list of pairs.
    pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    headers = tuple(pairs)
    return Stored(partition, offset, timestamp, message.key(), message.value(), headers)
