"""A process that is interrupted repeatedly anywhere in the producer's calls.

Run as ``python -m tests.integration.lifecycle.interrupted INTERRUPTIONS BOOTSTRAP HABIT``. HABIT is
"mixed", or "lone": it waits for every record and so runs the sender loop itself.
Prints the outcome of every record and the final state of the producer as JSON.
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
MAX_INTERVAL = 0.004
"""Maximum seconds to the next interruption: long enough to reach every line."""


class InterruptedProgram:
    """Sends, waits and flushes; interrupted calls are not repeated."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=1, batch_size=500, buffer_memory=5000
        )
        self.producer.partitions_for(TOPIC)
        self.futures: dict[int, FutureRecordMetadata] = {}
        self.interruptions = 0
        self._random = random.Random(seed)
        self._number = 0
        self._called_back: list[int] = []

    def send(self) -> None:
        self._number += 1
        number = self._number
        value = b"%d" % number * self._random.randint(1, 20)
        headers = [("h", b"v")] if self._random.random() < 0.5 else None  # also the Python path
        future = self.producer.send(
            TOPIC, b"%d|" % number + value, headers=headers, partition=number % PARTITIONS
        )
        self.futures[number] = future
        if self._random.random() < 0.2:
            future.add_both(lambda _: self._called_back.append(number))

    def get(self) -> None:
        with suppress(KprodTimeoutError):
            self.futures[self._number].get(0.001)

    def send_and_wait(self) -> None:
        self.send()
        with suppress(KprodTimeoutError):
            self.futures[self._number].get(0.05)

    def flush(self) -> None:
        with suppress(KprodTimeoutError):
            self.producer.flush(0.005)

    def look_up_topic(self) -> None:
        with suppress(KprodTimeoutError):
            self.producer.partitions_for(f"{TOPIC}-{self._random.randint(1, 5)}")

    def run(self, interruptions: int, habit: str) -> None:
        calls: list[Callable[[], None]] = [self.send] * 30 + [self.get, self.flush]
        calls.append(self.look_up_topic)
        if habit == "lone":
            calls = [self.send_and_wait] * 30 + [self.flush]
        self.send()
        for number in range(interruptions):
            try:
                signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-4, MAX_INTERVAL))
                while True:
                    self._random.choice(calls)()
            except (Interrupted, KeyError):
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.interruptions += 1
            if number % 100 == 99:
                self.check_usable()

    def check_usable(self) -> None:
        """Another thread can use it: no lock is held, no memory is missing."""
        other = threading.Thread(target=self._use_it, daemon=True)
        other.start()
        other.join(LONG)
        assert not other.is_alive(), "another thread cannot use the producer"

    def _use_it(self) -> None:
        self.send()
        self.futures[self._number].get(LONG)
        self.producer.flush(LONG)

    def results(self) -> dict[str, object]:
        report = self.producer.close(LONG)
        counters = self.producer.metrics()["producer-metrics"]
        gc.collect()
        return {
            "interruptions": self.interruptions,
            "stored": [number for number, future in self.futures.items() if future.succeeded()],
            "not_ended": sum(not future.is_done for future in self.futures.values()),
            "report": [report.failed, report.pending],
            "used": counters["buffer-total-bytes"] - counters["buffer-available-bytes"],
            "waiting": counters["waiting-threads"],
        }


def main(interruptions: str, bootstrap: str, habit: str) -> None:
    program = InterruptedProgram(bootstrap, seed=1)
    with interruptible():
        program.run(int(interruptions), habit)
    program.check_usable()
    print(json.dumps(program.results()))


if __name__ == "__main__":
    main(*sys.argv[1:])
