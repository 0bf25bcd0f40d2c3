"""Resources of a process before and after records, connections and producers.

Run as ``python -m tests.integration.lifecycle.leaks BOOTSTRAP PROXY_PORT RECORDS RECONNECTS
CYCLES``. It warms up with a small part of the work, then prints the resources after each kind of
work as JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

from kprod import KafkaProducer
from kprod.errors import KprodError
from kprod.transport.tcp import Address, TcpBackend
from tests.support.held_resources import held_resources

TOPIC = "leaks"
PARTITIONS = 4


class Resources(NamedTuple):
    memory: int
    files: int
    threads: int
    objects: int


def resources() -> Resources:
    """The current resources after a garbage collection."""
    for _ in range(3):
        gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    kernel = held_resources()
    return Resources(kernel.memory, kernel.files, threading.active_count(), len(gc.get_objects()))


class Work:
    def __init__(self, bootstrap: str, proxy_port: int) -> None:
        self._bootstrap = bootstrap
        self._proxy_port = proxy_port
        self._reported = 0

    def _count(self, _: object) -> None:
        self._reported += 1

    def records(self, records: int) -> None:
        with self._producer() as producer:
            for number in range(records):
                headers = [("h", b"v")] if number % 10 == 0 else None
                future = producer.send(TOPIC, b"%d" % number, headers=headers)
                if number % 100 == 0:
                    future.add_both(self._count)
            assert producer.close().failed == 0

    def reconnects(self, reconnects: int) -> None:
        """A proxy cuts connections at any byte."""
        options: dict[str, Any] = dict.fromkeys(
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms", "retry_backoff_ms"), 1
        )
        through_the_proxy = [Address(socket.AF_INET, ("127.0.0.1", self._proxy_port))]
        with self._producer(
            transport=lambda: TcpBackend(resolver=lambda host, port: through_the_proxy),
            metadata_max_age_ms=1000,
            linger_ms=0,
            **options,
        ) as producer:
            while producer.metrics()["producer-metrics"]["connection-close-total"] < reconnects:
                futures = [producer.send(TOPIC, bytes(500)) for _ in range(20)]
                futures[-1].get(30)

    def refusals(self, attempts: int) -> None:
        with KafkaProducer(
            bootstrap_servers="127.0.0.1:1",
            max_block_ms=20,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=1,
            retry_backoff_ms=1,
        ) as producer:
            for number in range(attempts // 10):
                with suppress(KprodError):
                    producer.send(f"{TOPIC}-{number % 10}", b"v")

    def cycles(self, cycles: int) -> None:
        for _ in range(cycles):
            with self._producer() as producer:
                producer.send(TOPIC, b"v").add_both(self._count)

    def drops(self, cycles: int) -> None:
        for _ in range(cycles // 10):
            self._producer().send(TOPIC, b"v").add_both(self._count)
        while any(thread.name.startswith("kprod-") for thread in threading.enumerate()):
            time.sleep(0.01)

    def _producer(self, **options: Any) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self._bootstrap, **options)


def main(bootstrap: str, proxy_port: str, records: str, reconnects: str, cycles: str) -> None:
    work = Work(bootstrap, int(proxy_port))
    amounts = {
        work.records: int(records),
        work.reconnects: int(reconnects),
        work.refusals: int(reconnects),
        work.cycles: int(cycles),
        work.drops: int(cycles),
    }
    for act, amount in amounts.items():
        act(max(20, min(amount // 10, 100_000)))
    measured = [("warm", resources())]
    for act, amount in amounts.items():
        act(amount)
        measured.append((act.__name__, resources()))
    print(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
