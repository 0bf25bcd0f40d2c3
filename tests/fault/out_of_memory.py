"""A process in which one allocation after the other fails while records are sent.

Run as ``python -m tests.fault.out_of_memory BOOTSTRAP TOPIC``. Prints, as JSON, the numbers of the
records whose send returned, and how many sends ran out of memory.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]
import json
import sys
from typing import Any

from kprod import KafkaProducer

MOST_ALLOCATIONS = 400
"""Far more than one call of send makes."""

LANES: list[dict[str, Any]] = [
    {},
    {"key": b"key"},
    {"headers": [("name", b"value"), ("null", None)]},
    {"partition": 1, "timestamp_ms": 5},
    {"value_size": 3000},
]


def main(bootstrap: str, topic: str) -> None:
    futures = {}
    refused = 0
    with KafkaProducer(bootstrap_servers=bootstrap, batch_size=2000, linger_ms=20) as producer:
        producer.send(topic, b"-1").get(20)
        for lane, options in enumerate(LANES):
            arguments = dict(options)
            size = arguments.pop("value_size", 0)
            for failing in range(MOST_ALLOCATIONS):
                number = lane * MOST_ALLOCATIONS + failing
                value = b"%0*d" % (size, number)
                _testcapi.set_nomemory(failing, failing + 1)
                try:
                    future = producer.send(topic, value, **arguments)
                except (MemoryError, RuntimeError):  # Python: "can't allocate lock"
                    _testcapi.remove_mem_hooks()
                    refused += 1
                else:
                    _testcapi.remove_mem_hooks()
                    futures[number] = future
                if failing % 50 == 49:
                    producer.flush(20)
        producer.flush(20)
        counters = producer.metrics()["producer-metrics"]
        leaked = counters["buffer-total-bytes"] - counters["buffer-available-bytes"]
        stored = [number for number, future in futures.items() if future.succeeded()]
    print(json.dumps({"stored": stored, "refused": refused, "leaked": leaked}))


if __name__ == "__main__":
    main(*sys.argv[1:])
