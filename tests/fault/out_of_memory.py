"""A process in which one allocation after the other fails while records are sent.

``python -m tests.fault.out_of_memory BOOTSTRAP TOPIC CODEC``. Prints, as JSON, the numbers of the
records that were acknowledged, how many calls of send ran out of memory, and the bytes that are not
free in the end.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]
import json
import sys
from typing import Any

from kprod import KafkaProducer
from kprod_ext.futures import FutureRecordMetadata

MOST_ALLOCATIONS = 400
"""Far more than one call of send makes; what it leaves over, the sender's thread may meet."""

PATHS: list[dict[str, Any]] = [
    {},
    {"key": b"key"},
    {"headers": [("name", b"value"), ("null", None)]},
    {"partition": 1, "timestamp_ms": 5},
    {"size": 3000},
]


def send(
    producer: KafkaProducer, topic: str, number: int, failing: int, *, size: int = 0, **options: Any
) -> FutureRecordMetadata | None:
    """Send ``number`` while allocation ``failing`` from now fails; None when send had no memory."""
    value = b"%0*d" % (size, number)
    _testcapi.set_nomemory(failing, failing + 1)
    try:
        return producer.send(topic, value, **options)
    except (MemoryError, RuntimeError):  # Python's for one of its locks: "can't allocate lock"
        return None
    finally:
        _testcapi.remove_mem_hooks()


def main(bootstrap: str, topic: str, codec: str) -> None:
    futures: dict[int, FutureRecordMetadata | None] = {}
    options: Any = {"batch_size": 2000, "linger_ms": 20, "compression_type": codec}
    with KafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
        producer.send(topic, b"-1").get(20)
        for path in PATHS:
            for failing in range(MOST_ALLOCATIONS):
                number = len(futures)
                futures[number] = send(producer, topic, number, failing, **path)
                if failing % 50 == 49:
                    producer.flush(20)
        pool = producer.metrics()["producer-metrics"]
    kept = {number: future for number, future in futures.items() if future is not None}
    said = {
        "stored": [number for number, future in kept.items() if future.succeeded()],
        "refused": len(futures) - len(kept),
        "taken": pool["buffer-total-bytes"] - pool["buffer-available-bytes"],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
