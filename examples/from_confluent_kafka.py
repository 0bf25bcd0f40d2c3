"""A program for confluent-kafka that runs on kprod: only the first import has changed.

python examples/from_confluent_kafka.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse
import sys

from kprod.confluent import KafkaError, Message, Producer  # before: from confluent_kafka import ...

RECORDS = 1_000


def main() -> int:
    """Return 0 if every record was delivered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    delivered, failed = 0, 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        else:
            failed += 1
            print(f"{message.topic()} {message.key()}: {error}", file=sys.stderr)

    producer = Producer({"bootstrap.servers": arguments.bootstrap_servers, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce(
            arguments.topic, b"order %d" % number, key=b"%d" % number, on_delivery=on_delivery
        )
        producer.poll(0)
    left = producer.flush(30)
    print(f"{delivered} delivered, {failed} failed, {left} without a report")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
