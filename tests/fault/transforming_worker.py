"""A consume-transform-produce worker: writes lines in upper case, in transactions.

Run as ``python -m tests.fault.transforming_worker BOOTSTRAP NAME PARTITION...``; ``NAME`` is its
transactional id.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, TopicPartition

from kprod import KafkaProducer
from tests.support.confluent_consumer import confluent_consumer

INPUT, OUTPUT, GROUP = "lines", "upper-case-lines", "transforming"
MAX_RECORDS = 200
SECONDS = 120


def main(bootstrap_servers: str, name: str, partitions: list[int]) -> None:
    """Work until the process is killed."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=name,
        max_block_ms=SECONDS * 1000,
        reconnect_backoff_max_ms=200,
    )
    producer.init_transactions()  # ends a transaction left open by the previous worker
    options = {"isolation_level": "read_committed", "reconnect_backoff_max_ms": 200}
    consumer = confluent_consumer(bootstrap_servers, group=GROUP, **options)
    topic_partitions = [TopicPartition(INPUT, number) for number in partitions]
    positions = consumer.committed(topic_partitions, timeout=SECONDS)
    for position in positions:
        position.offset = max(position.offset, 0)
    consumer.assign(positions)
    while True:
        _transform(consumer, producer)


def _transform(consumer: Consumer, producer: KafkaProducer) -> None:
    messages = [m for m in consumer.consume(MAX_RECORDS, 0.1) if m.error() is None]
    if not messages:
        return
    with producer.transaction() as transaction:
        for message in messages:
            producer.send(OUTPUT, (message.value() or b"").upper(), partition=message.partition())
        read = [
            position
            for position in consumer.position(consumer.assignment())
            if position.offset >= 0
        ]
        transaction.send_offsets(read, GROUP)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]])
