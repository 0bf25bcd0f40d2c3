"""A process in which one allocation after the other fails while records are sent.

``python -m tests.fault.out_of_memory BOOTSTRAP TOPIC CODEC``. Prints, as JSON, the numbers of the
records that were acknowledged and of those told as not stored, how many calls of send ran out of
memory, how many producers have ended, and the bytes that producers which had not ended left taken.
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

MOST_ALLOCATIONS = 400
"""Far more than one call of send makes; what it leaves over, the sender's thread may meet."""

LOST_BY_PYTHON = (
    "error return without exception set",
    "returned NULL without setting an exception",
)
"""Ends of what Python says when it has forgotten an exception, for lack of memory.

The first: for the frame of a call, which is not entered. The second: a function that compiled code
has called raises, and its traceback finds no memory for the frame of that caller.
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
    except ProducerClosedError:  # memory has run out in the sender
        return None
    except (MemoryError, RuntimeError):  # Python's for one of its locks: "can't allocate lock"
        return None
    except SystemError as error:
        if not str(error).endswith(LOST_BY_PYTHON):
            raise
        return None
    finally:
        _testcapi.remove_mem_hooks()


class Life:
    """One producer after the other: each goes on until memory has run out in its sender."""

    def __init__(self, bootstrap: str, codec: str) -> None:
        self.ended = self.taken = 0
        self._options: Any = {
            "bootstrap_servers": bootstrap,
            "batch_size": 2000,
            "linger_ms": 20,
            "compression_type": codec,
        }
        self.producer = KafkaProducer(**self._options)

    def go_on(self, topic: str, number: int) -> FutureRecordMetadata:
        """Send ``number``, by a new producer if this one has ended."""
        try:
            return self.producer.send(topic, b"%d" % number)
        except ProducerClosedError:
            self.producer.close(20)
            self.ended += 1
            self.producer = KafkaProducer(**self._options)
            return self.producer.send(topic, b"%d" % number)

    def replace(self, last: FutureRecordMetadata) -> None:
        """Go on with a new producer; one that stored its ``last`` record gives back all memory."""
        self.producer.close(20)
        if last.succeeded():
            pool = self.producer.metrics()["producer-metrics"]
            self.taken += int(pool["buffer-total-bytes"] - pool["buffer-available-bytes"])
        self.producer = KafkaProducer(**self._options)


def main(bootstrap: str, topic: str, codec: str) -> None:
    keep_code()
    futures: dict[int, FutureRecordMetadata | None] = {}
    life = Life(bootstrap, codec)
    life.producer.send(topic, b"-1").get(20)
    for path in PATHS:
        for failing in range(MOST_ALLOCATIONS):
            number = len(futures)
            futures[number] = send(life.producer, topic, number, failing, **path)
            if failing % 10 == 9:
                futures[number + 1] = life.go_on(topic, number + 1)
            if failing % 50 == 49:
                life.producer.flush(20)
        futures[len(futures)] = last = life.go_on(topic, len(futures))
        life.replace(last)
    life.producer.close(20)
    kept = {number: future for number, future in futures.items() if future is not None}
    failed = {number: future.exception for number, future in kept.items()}
    said = {
        "stored": [number for number, future in kept.items() if future.succeeded()],
        "not stored": [n for n, e in failed.items() if e and e.persisted is Persisted.NO],
        "open": [number for number, future in kept.items() if not future.is_done],
        "refused": len(futures) - len(kept),
        "ended": life.ended,
        "taken": life.taken,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
