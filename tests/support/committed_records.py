"""What a reader of committed records sees, by a consumer that is not ours."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

SECONDS = 300.0
FETCH_WAIT_MS = 10
"""A broker waits so long at the end of a partition before it says that this is the end."""
ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader that knows no high watermark yet
)
ELECTION_PAUSE = 0.1
"""Seconds between two questions about a partition that is being given a leader."""


def committed(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    *,
    isolation: str = "read_committed",
    seconds: float = SECONDS,
) -> list[bytes]:
    """The values of a topic up to where each log ends now, partition after partition.

    A coordinator answers EndTxn once it has decided; the markers come later, partition after
    partition, and only then does the last stable offset move. So each partition is read until it
    is stable up to the end that its log had when the call began. AssertionError when that takes
    longer than ``seconds``: a transaction may have been left open.
    """
    ends = log_ends(bootstrap_servers, topic, partitions)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-only",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "log_level": 2,
        }
    )
    places = [ConfluentPartition(topic, number, 0) for number in range(partitions)]
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    unread = set(found)
    consumer.assign(places)
    deadline = time.monotonic() + seconds
    try:
        while unread:
            assert time.monotonic() < deadline, f"partitions {unread} are not stable up to {ends}"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[message.partition() or 0].append(message.value() or b"")
                continue
            at_end = error.code() == KafkaError._PARTITION_EOF
            if at_end and (message.offset() or 0) >= ends[message.partition() or 0]:
                unread.discard(message.partition())
    finally:
        consumer.close()
    return [value for number in sorted(found) for value in found[number]]


def log_ends(bootstrap_servers: str, topic: str, partitions: int) -> list[int]:
    """Where each partition's log ends, transactions that are open included."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-only",
            "isolation.level": "read_uncommitted",
            "log_level": 2,
        }
    )
    try:
        return [_log_end(consumer, topic, number) for number in range(partitions)]
    finally:
        consumer.close()


def _log_end(consumer: Consumer, topic: str, partition: int) -> int:
    """Asked again while the partition has no leader, or another one than the consumer knows."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            place = ConfluentPartition(topic, partition)
            end: int = consumer.get_watermark_offsets(place, SECONDS)[1]
        except KafkaException as error:
            if error.args[0].code() not in ELECTING or time.monotonic() > deadline:
                raise
            time.sleep(ELECTION_PAUSE)
        else:
            return end


def group_offset(
    bootstrap_servers: str, group: str, topic: str, partition: int, *, wait: bool = True
) -> int:
    """What the group has committed there; below 0 for nothing.

    ``wait`` for pending transactions; else what was committed before them.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed" if wait else "read_uncommitted",
            "log_level": 2,
        }
    )
    try:
        (place,) = consumer.committed([ConfluentPartition(topic, partition)], timeout=SECONDS)
        offset: int = place.offset
        return offset
    finally:
        consumer.close()
