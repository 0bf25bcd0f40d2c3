"""A process whose main thread is blocked in a call of the producer, and what Ctrl-C leaves of it.

Run as ``python -m tests.integration.lifecycle.blocked CALL BOOTSTRAP BROKER_PID``. Says "blocked"
when the main thread does not move any more; once interrupted, when that was on the monotonic clock;
and at last, as JSON, what is true of the producer when the broker has come back to life.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from kprod import KafkaProducer
from kprod.errors import ProducerClosedError
from kprod_ext.futures import FutureRecordMetadata
from tests.support.frozen import freeze, thaw

TOPIC = "blocked"
LONG = 40.0
STILL = 25
"""Looks in a row, 4 ms apart, at which the main thread has not moved."""


class Blocked:
    """Each public method blocks for as long as the broker hangs."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, buffer_memory=200_000, max_block_ms=int(LONG * 1000)
        )
        self.producer.partitions_for(TOPIC)
        self.futures: list[FutureRecordMetadata] = []

    def queue_some(self) -> None:
        for _ in range(10):
            self.futures.append(self.producer.send(TOPIC, bytes(1000)))

    def send_waiting_for_memory(self) -> None:
        while True:
            self.futures.append(self.producer.send(TOPIC, bytes(10_000)))

    def send_waiting_for_metadata(self) -> None:
        self.producer.send("unknown", b"v")

    def partitions(self) -> None:
        self.producer.partitions_for("unknown")

    def flush(self) -> None:
        self.producer.flush()

    def get(self) -> None:
        self.futures[-1].get()

    def close(self) -> None:
        self.producer.close()

    def leave(self) -> None:
        with self.producer:
            pass

    def state(self) -> dict[str, object]:
        """Once the broker is back: does everything come to its end, and work?"""
        try:
            works = self.producer.send(TOPIC, b"after").get(LONG).offset >= 0
        except ProducerClosedError:
            works = False
        report = self.producer.close(LONG)
        counters = self.producer.metrics()["producer-metrics"]
        return {
            "works": works,
            "stored": report.delivered,
            "failed": report.failed,
            "pending": report.pending,
            "sent": len(self.futures),
            "ended": sum(future.is_done for future in self.futures),
            "used": counters["buffer-total-bytes"] - counters["buffer-available-bytes"],
            "waiting": counters["waiting-threads"],
            "threads": [t.name for t in threading.enumerate() if t.name.startswith("kprod")],
        }


def tell_when_still() -> None:
    """Look at the main thread until it does not move."""
    main, seen, still = threading.main_thread().ident or 0, (0, 0), 0
    while still < STILL:
        time.sleep(0.004)
        frame = sys._current_frames()[main]
        now = (id(frame), frame.f_lasti)
        still = still + 1 if now == seen else 0
        seen = now
    print("blocked", flush=True)


def main(call: str, bootstrap: str, broker: str) -> None:
    blocked = Blocked(bootstrap)
    freeze(int(broker))
    blocked.queue_some()
    threading.Thread(target=tell_when_still, daemon=True).start()
    try:
        getattr(blocked, call)()
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
    thaw(int(broker))
    print(json.dumps(blocked.state()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
