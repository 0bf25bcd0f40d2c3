"""A gateway of devices, each with a topic of its own."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import KafkaError, Producer

DEVICES = 1_000

stored: dict[str, int] = {}
failed: dict[str, str] = {}


def delivered(error: Any, message: Any) -> None:
    if error is None:
        stored[message.topic()] = stored.get(message.topic(), 0) + 1
    else:
        failed[message.topic()] = error.name()


options = {"message.timeout.ms": 240_000, "enable.idempotence": True}
producer = Producer({"bootstrap.servers": sys.argv[1], **options})
for reading in range(2):
    for device in range(DEVICES):
        producer.produce(f"device-{device}", b"%d" % reading, on_delivery=delivered)
        producer.poll(0)
producer.produce("no such/device", b"0", on_delivery=delivered)
left = producer.flush(250)
assert KafkaError.TOPIC_EXCEPTION == 17
print(json.dumps([left, len(stored), sum(stored.values()), failed]))
