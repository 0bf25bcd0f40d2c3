"""A worker of consume-transform-produce: writes what it reads in upper case, as whole transactions.

Run as ``python -m tests.fault.transforming_worker BOOTSTRAP NAME PARTITION...``; ``NAME`` is its
transactional id.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, TopicPartition

from kprod import KafkaProducer
from tests.support.confluent_consumer import confluent_consumer

INPUT, OUTPUT, GROUP = "lines", "upper-case-lines", "transforming"
MOST_RECORDS = 200
SECONDS = 120


def main(bootstrap_servers: str, name: str, partitions: list[int]) -> None:
    """Work until somebody ends the process."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=name,
        max_block_ms=SECONDS * 1000,
        reconnect_backoff_max_ms=200,
    )
    producer.init_transactions()  # what the one before left open has ended now
    options = {"isolation_level": "read_committed", "reconnect_backoff_max_ms": 200}
    consumer = confluent_consumer(bootstrap_servers, group=GROUP, **options)
    places = [TopicPartition(INPUT, number) for number in partitions]
    known = consumer.committed(places, timeout=SECONDS)
    for place in known:
        place.offset = max(place.offset, 0)
    consumer.assign(known)
    while True:
        _transform(consumer, producer)


def _transform(consumer: Consumer, producer: KafkaProducer) -> None:
    messages = [m for m in consumer.consume(MOST_RECORDS, 0.1) if m.error() is None]
    if not messages:
        return
    with producer.transaction() as transaction:
        for message in messages:
            producer.send(OUTPUT, (message.value() or b"").upper(), partition=message.partition())
        read = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        transaction.send_offsets(read, GROUP)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:]])
