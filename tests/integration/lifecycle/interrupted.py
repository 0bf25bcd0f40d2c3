"""A process that is interrupted again and again, anywhere in the producer's calls, and goes on.

Run as ``python -m tests.integration.lifecycle.interrupted INTERRUPTIONS BOOTSTRAP HABIT``, where
HABIT is "mixed", or "lone": it waits for every record by itself, and so takes the sender's turns.
Prints as JSON what it was told of every record, and what was left of the producer.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from kprod import KafkaProducer
from kprod.errors import KprodTimeoutError
from kprod_ext.futures import FutureRecordMetadata
from tests.support.interruption import Interrupted, interruptible

TOPIC = "interrupted"
PARTITIONS = 2
LONG = 30.0
LONGEST = 0.004
"""Seconds to the next interruption at most: long enough to come to every line."""


class Interruptee:
    """Sends, waits, flushes; whatever is interrupted is not tried again."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=1, batch_size=500, buffer_memory=5000
        )
        self.producer.partitions_for(TOPIC)
        self.told: dict[int, FutureRecordMetadata] = {}
        self.interruptions = 0
        self._random = random.Random(seed)
        self._number = 0
        self._called_back: list[int] = []

    def send(self) -> None:
        self._number += 1
        number = self._number
        value = b"%d" % number * self._random.randint(1, 20)
        headers = [("h", b"v")] if self._random.random() < 0.5 else None  # the Python path, too
        future = self.producer.send(
            TOPIC, b"%d|" % number + value, headers=headers, partition=number % PARTITIONS
        )
        self.told[number] = future
        if self._random.random() < 0.2:
            future.add_both(lambda _: self._called_back.append(number))

    def get(self) -> None:
        with suppress(KprodTimeoutError):
            self.told[self._number].get(0.001)

    def send_and_wait(self) -> None:
        self.send()
        with suppress(KprodTimeoutError):
            self.told[self._number].get(0.05)

    def flush(self) -> None:
        with suppress(KprodTimeoutError):
            self.producer.flush(0.005)

    def know_another(self) -> None:
        with suppress(KprodTimeoutError):
            self.producer.partitions_for(f"{TOPIC}-{self._random.randint(1, 5)}")

    def go_on(self, interruptions: int, habit: str) -> None:
        calls: list[Callable[[], None]] = [self.send] * 30 + [self.get, self.flush]
        calls.append(self.know_another)
        if habit == "lone":
            calls = [self.send_and_wait] * 30 + [self.flush]
        self.send()
        for number in range(interruptions):
            try:
                signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-4, LONGEST))
                while True:
                    self._random.choice(calls)()
            except (Interrupted, KeyError):
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.interruptions += 1
            if number % 100 == 99:
                self.check_that_it_works()

    def check_that_it_works(self) -> None:
        """Others can use it: no lock was left held, no memory is missing."""
        other = threading.Thread(target=self._use_it, daemon=True)
        other.start()
        other.join(LONG)
        assert not other.is_alive(), "another thread cannot use the producer any more"

    def _use_it(self) -> None:
        self.send()
        self.told[self._number].get(LONG)
        self.producer.flush(LONG)

    def account(self) -> dict[str, object]:
        report = self.producer.close(LONG)
        counters = self.producer.metrics()["producer-metrics"]
        gc.collect()
        return {
            "interruptions": self.interruptions,
            "stored": [number for number, future in self.told.items() if future.succeeded()],
            "not_ended": sum(not future.is_done for future in self.told.values()),
            "report": [report.failed, report.pending],
            "used": counters["buffer-total-bytes"] - counters["buffer-available-bytes"],
            "waiting": counters["waiting-threads"],
        }


def main(interruptions: str, bootstrap: str, habit: str) -> None:
    interruptee = Interruptee(bootstrap, seed=1)
    with interruptible():
        interruptee.go_on(int(interruptions), habit)
    interruptee.check_that_it_works()
    print(json.dumps(interruptee.account()))


if __name__ == "__main__":
    main(*sys.argv[1:])
