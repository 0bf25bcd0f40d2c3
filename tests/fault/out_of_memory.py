"""A process that sends records while single allocations fail, one after the other.

``python -m tests.fault.out_of_memory BOOTSTRAP TOPIC CODEC``. Prints as JSON the numbers of
acknowledged records and of those reported as not stored, the number of sends without memory and of
ended producers, and the bytes still allocated by other producers.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]
import json
import sys
from typing import Any

from kprod import KafkaProducer
from kprod.errors import ProducerClosedError
from kprod.types import Persisted
from kprod_ext.futures import FutureRecordMetadata
from tests.support.failing_malloc import keep_code

MAX_ALLOCATIONS = 400
"""Far more than one send() makes; later ones may fail in the sender thread."""

LOST_EXCEPTIONS = (
    "error return without exception set",
    "returned NULL without setting an exception",
)
"""Ends of Python's messages when it lost an exception for lack of memory.

The first: no memory for the frame of a call. The second: a function called by compiled code raises,
and there is no memory for that caller's frame in the traceback.
"""

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
    except ProducerClosedError:  # the sender ran out of memory
        return None
    except (MemoryError, RuntimeError):  # of Python: "can't allocate lock"
        return None
    except SystemError as error:
        if not str(error).endswith(LOST_EXCEPTIONS):
            raise
        return None
    finally:
        _testcapi.remove_mem_hooks()


class Producers:
    """Consecutive producers: each is used until its sender runs out of memory."""

    def __init__(self, bootstrap: str, codec: str) -> None:
        self.ended = self.allocated = 0
        self._options: Any = {
            "bootstrap_servers": bootstrap,
            "batch_size": 2000,
            "linger_ms": 20,
            "compression_type": codec,
        }
        self.producer = KafkaProducer(**self._options)

    def send(self, topic: str, number: int) -> FutureRecordMetadata:
        """Send ``number``, by a new producer if this one has ended."""
        try:
            return self.producer.send(topic, b"%d" % number)
        except ProducerClosedError:
            self.producer.close(20)
            self.ended += 1
            self.producer = KafkaProducer(**self._options)
            return self.producer.send(topic, b"%d" % number)

    def replace(self, last: FutureRecordMetadata) -> None:
        """Use a new producer. One that stored its ``last`` record must have freed all memory."""
        self.producer.close(20)
        if last.succeeded():
            pool = self.producer.metrics()["producer-metrics"]
            self.allocated += int(pool["buffer-total-bytes"] - pool["buffer-available-bytes"])
        self.producer = KafkaProducer(**self._options)


def main(bootstrap: str, topic: str, codec: str) -> None:
    keep_code()
    futures: dict[int, FutureRecordMetadata | None] = {}
    producers = Producers(bootstrap, codec)
    producers.producer.send(topic, b"-1").get(20)
    for path in PATHS:
        for failing in range(MAX_ALLOCATIONS):
            number = len(futures)
            futures[number] = send(producers.producer, topic, number, failing, **path)
            if failing % 10 == 9:
                futures[number + 1] = producers.send(topic, number + 1)
            if failing % 50 == 49:
                producers.producer.flush(20)
        futures[len(futures)] = last = producers.send(topic, len(futures))
        producers.replace(last)
    producers.producer.close(20)
    sent = {number: future for number, future in futures.items() if future is not None}
    failed = {number: future.exception for number, future in sent.items()}
    results = {
        "stored": [number for number, future in sent.items() if future.succeeded()],
        "not stored": [n for n, e in failed.items() if e and e.persisted is Persisted.NO],
        "open": [number for number, future in sent.items() if not future.is_done],
        "refused": len(futures) - len(sent),
        "ended": producers.ended,
        "allocated": producers.allocated,
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
