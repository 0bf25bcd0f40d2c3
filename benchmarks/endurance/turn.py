"""One Python client's turn: records for minutes, with default options, in a process of its own.

    python -m benchmarks.endurance.turn "kprod send" '{"size": 100, ...}' HOST:PORT TOPIC

prints as a line of JSON, for each part of the time: ``records`` that were sent, ``seconds``,
``cpu_seconds`` of the process, ``requests`` and ``rss_bytes`` at its end; and ``sent``, all records
of the turn. A turn fails when a record does. ``Endurance.java`` does the same.
"""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from benchmarks.endurance.load import KEYS, PARTS, Load
from kprod.cli.perf.workload import letters
from tests.support.held_resources import resident_bytes

SLICE = 1_000
"""Records between two looks at the clock, and at outcomes."""
OUTSTANDING = 200
"""Slices whose outcomes nobody has looked at yet."""
FULL_SECONDS = 0.01
"""How long to wait for callbacks when the queue is full."""
STATISTICS_MS = 500

Pairs = Sequence[tuple[bytes, bytes]]


class Client(ABC):
    """A producer with its default options. Thread: one."""

    @abstractmethod
    def send(self, pairs: Pairs) -> None:
        """Send a slice of values and keys; waits where the client makes the caller wait."""

    @abstractmethod
    def finish(self) -> None:
        """Return when every record has its outcome; AssertionError if one failed."""

    @abstractmethod
    def requests(self) -> int:
        """Requests so far."""

    def close(self) -> None:  # noqa: B027 - not every client has such a call
        """End it."""


class Kprod(Client):
    """``send``; every future is kept until it has been looked at."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from kprod import KafkaProducer

        self._topic = topic
        self._producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
        self._slices: deque[list[Any]] = deque()

    def send(self, pairs: Pairs) -> None:
        """See Client."""
        send, topic = self._producer.send, self._topic
        self._slices.append([send(topic, value, key) for value, key in pairs])
        while self._slices and (len(self._slices) > OUTSTANDING or self._slices[0][-1].is_done):
            self._look(self._slices.popleft())

    def _look(self, futures: list[Any]) -> None:
        for future in futures:
            if not future.succeeded():
                future.get(120)

    def finish(self) -> None:
        """See Client."""
        assert self._producer.flush(120).failed == 0
        while self._slices:
            self._look(self._slices.popleft())

    def requests(self) -> int:
        """See Client."""
        return int(self._producer.metrics()["producer-metrics"]["request-total"])

    def close(self) -> None:
        """See Client."""
        self._producer.close()


class Confluent(Client):
    """``produce`` with a delivery callback that counts; a full queue is waited for."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._sent = self._delivered = self._requests = 0
        options = {
            "bootstrap.servers": bootstrap_servers,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._on_statistics,
        }
        self._producer: Any = Producer(options)

    def _on_statistics(self, told: str) -> None:
        self._requests = json.loads(told)["tx"]

    def _on_delivery(self, error: Any, _message: Any) -> None:
        assert error is None, error
        self._delivered += 1

    def send(self, pairs: Pairs) -> None:
        """See Client."""
        produce, topic, done = self._producer.produce, self._topic, self._on_delivery
        for value, key in pairs:
            while True:
                try:
                    produce(topic, value, key, on_delivery=done)
                    break
                except BufferError:
                    self._producer.poll(FULL_SECONDS)
        self._sent += len(pairs)
        self._producer.poll(0)

    def finish(self) -> None:
        """See Client."""
        assert self._producer.flush(120) == 0
        assert self._delivered == self._sent

    def requests(self) -> int:
        """See Client. The last statistics are of at most half a second ago."""
        return self._requests


SIDES: dict[str, type[Kprod] | type[Confluent]] = {
    "kprod send": Kprod,
    "confluent produce + callback": Confluent,
}
"""The Python clients by name."""


def run(side: str, load: Load, bootstrap_servers: str, topic: str) -> dict[str, Any]:
    """Take the turn in this process; the figures by name."""
    client = SIDES[side](bootstrap_servers, topic)
    keys = [b"key-%d" % number for number in range(KEYS)]
    endless = cycle(zip(cycle(letters(load.size)), cycle(keys), strict=False))
    slices = [list(islice(endless, SLICE)) for _ in range(KEYS // 10)]
    sent = _part(client, slices, load.warm_up)["records"]
    client.finish()
    parts = [_part(client, slices, load.seconds / PARTS) for _ in range(PARTS)]
    client.finish()
    client.close()
    return {"parts": parts, "sent": sent + sum(part["records"] for part in parts)}


def _part(client: Client, slices: Sequence[Pairs], seconds: float) -> dict[str, Any]:
    now, started, cpu = time.perf_counter, time.perf_counter(), time.process_time()
    requests, records = client.requests(), 0
    for each in cycle(slices):
        client.send(each)
        records += len(each)
        if now() - started >= seconds:
            break
    return {
        "records": records,
        "seconds": now() - started,
        "cpu_seconds": time.process_time() - cpu,
        "requests": client.requests() - requests,
        "rss_bytes": resident_bytes(),
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Load(**json.loads(sys.argv[2])), *sys.argv[3:])))
