"""A relay that puts what a topic refuses into another topic, with the reason."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Producer

noticed: list[Any] = []
producer = Producer({"bootstrap.servers": sys.argv[1], "message.timeout.ms": 30_000})


def delivered(error: Any, message: Any) -> None:
    noticed.append([message.topic(), None if error is None else error.name()])
    if error is not None and message.topic() != "dead":
        headers = [*(message.headers() or []), ("reason", error.name().encode())]
        headers.append(("topic", message.topic().encode()))
        producer.produce(
            "dead", message.key(), message.key(), headers=headers, on_delivery=delivered
        )


for number in range(10):
    size = 5_000 if number == 4 else 10
    producer.produce("small", bytes(size), b"%d" % number, on_delivery=delivered)
    producer.flush(30)
producer.flush(30)
print(json.dumps(noticed))
