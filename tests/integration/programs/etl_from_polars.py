"""A nightly job that publishes the rows of a frame, and skips what is too large."""

from __future__ import annotations

import json
import sys

import polars
from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError

frame = polars.DataFrame(
    {
        "id": range(100),
        "name": [f"customer {number}" for number in range(100)],
        "note": ["x" * (2_000_000 if number == 50 else number) for number in range(100)],
    }
).filter(polars.col("id") % 2 == 0)

producer = KafkaProducer(
    bootstrap_servers=sys.argv[1],
    key_serializer=lambda key: str(key).encode(),
    value_serializer=lambda value: json.dumps(value).encode(),
    max_request_size=1_000_000,
)
futures, skipped = [], []
for row in frame.iter_rows(named=True):
    try:
        futures.append(producer.send("customers", row, key=row["id"]))
    except MessageSizeTooLargeError:
        skipped.append(row["id"])
producer.flush()
stored = [future.get(timeout=30) for future in futures]
producer.close()
sizes = [(one.serialized_key_size, one.serialized_value_size) for one in stored]
print(json.dumps([len(stored), skipped, sizes]))
