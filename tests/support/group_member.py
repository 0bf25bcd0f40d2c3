"""A consumer in a process of its own, to be killed.

``python -m tests.support.group_member BOOTSTRAP TOPIC FILE`` consumes in group ``g`` and commits
after each record. Before a commit it writes ``did PARTITION OFFSET VALUE`` to the file, and
``committed ...`` once it is confirmed: lines that are there outlive SIGKILL.

The consumer has a callback for partitions that are taken from it. Without one librdkafka joins the
next generation by itself, in the background: the commit of a record polled before then carries the
new generation, the coordinator confirms it (it checks the member, not whose the partition is, as
Apache Kafka does), and the partition's new owner processes the record as well. With a callback the
rebalance waits for the next ``poll``, and so for the commit.
"""

from __future__ import annotations

import os
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition


def main(bootstrap: str, topic: str, path: str) -> None:
    """See the module's docstring."""
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe([topic], on_revoke=_revoked)
    while True:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        value = (message.value() or b"").decode()
        record = f"{message.partition()} {message.offset()} {value}\n".encode()
        os.write(journal, b"did " + record)
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException:
            continue  # the group went on without this member: another one has the record
        os.write(journal, b"committed " + record)


def _revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Nothing is in hand: each record was committed before ``poll`` was called again."""


if __name__ == "__main__":
    main(*sys.argv[1:])
