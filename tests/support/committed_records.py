"""Reads records back with confluent-kafka, an independent consumer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as ConfluentPartition

SECONDS = 300.0
FETCH_WAIT_MS = 10
"""How long a broker waits at the end of a partition before it answers."""
ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader without a high watermark
)
ELECTION_PAUSE = 0.1
"""Seconds between retries during a leader election."""


class Stored(NamedTuple):
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


def committed(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    isolation: str = "read_committed",
    seconds: float = SECONDS,
) -> list[bytes]:
    """The values of the topic, partition by partition.

    A coordinator answers EndTxn before it writes the markers, which advance the last stable offset.
    So each partition is read up to its log end at the beginning of the call. AssertionError after
    ``seconds``: a transaction may have been left open.
    """
    found = read_each(bootstrap, topic, partitions, seconds, isolation=isolation)
    return [record.value or b"" for record in sorted(found, key=lambda record: record.partition)]


def read_each(
    bootstrap: str,
    topic: str,
    partitions: int,
    seconds: float = 30.0,
    *,
    at_least: int = 0,
    isolation: str = "read_uncommitted",
    ends: Sequence[int] | None = None,
) -> Iterator[Stored]:
    """Every record of the topic, those of a partition by offset; AssertionError when it stalls.

    Each partition is read up to its offset in ``ends``, by default its current log end. At least
    ``at_least`` records are awaited: a busy Tansu may report an outdated log end.
    """
    ends = log_ends(bootstrap, topic, partitions) if ends is None else ends
    unread, count = set(range(partitions)), 0
    deadline = time.monotonic() + seconds
    with closing(_consumer(bootstrap, "reader", isolation)) as consumer:
        consumer.assign([ConfluentPartition(topic, p, OFFSET_BEGINNING) for p in sorted(unread)])
        while unread or count < at_least:
            assert time.monotonic() < deadline, (
                f"{count} records read; partitions {unread} not up to {ends}"
            )
            for message in consumer.consume(10_000, timeout=0.2):
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    count += 1
                    yield _stored(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) >= ends[partition]:
                        unread.discard(partition)
                else:
                    assert error.code() != KafkaError._BAD_MSG, error


def _consumer(bootstrap: str, group: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 8_000_000,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "check.crcs": True,
            "isolation.level": isolation,
            "log_level": 2,
        }
    )


def _stored(message: Message) -> Stored:
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    # The stub also knows the forms that headers() accepts; what it returns is a list of pairs.
    pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    headers = tuple(pairs)
    return Stored(partition, offset, timestamp, message.key(), message.value(), headers)


def log_ends(bootstrap_servers: str, topic: str, partitions: int) -> list[int]:
    """The log end of each partition, open transactions included."""
    with closing(_consumer(bootstrap_servers, "reader", "read_uncommitted")) as consumer:
        return [_log_end(consumer, topic, number) for number in range(partitions)]


def _log_end(consumer: Consumer, topic: str, partition: int) -> int:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            where = ConfluentPartition(topic, partition)
            end: int = consumer.get_watermark_offsets(where, SECONDS)[1]
        except KafkaException as error:
            if error.args[0].code() not in ELECTING or time.monotonic() > deadline:
                raise
            time.sleep(ELECTION_PAUSE)
        else:
            return end


def group_offset(
    bootstrap_servers: str, group: str, topic: str, partition: int, *, wait: bool = True
) -> int:
    """The group's committed offset; negative if there is none.

    ``wait`` for pending transactions; else the offset before them.
    """
    isolation = "read_committed" if wait else "read_uncommitted"
    with closing(_consumer(bootstrap_servers, group, isolation)) as consumer:
        (found,) = consumer.committed([ConfluentPartition(topic, partition)], timeout=SECONDS)
        offset: int = found.offset
        return offset
