"""Connections to the embedded broker that only take room: ``python -m
tests.fault.hostile_connections IDLE PREFIXES``.

So many connections say nothing, and so many announce a request of 2 GiB less a byte, or of the
largest size that is let in, and send none of it. A client that behaves goes on meanwhile, and tells
how long its requests took; the memory of the broker's process is told with it.
"""

from __future__ import annotations

import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kprod.broker.api_key import ApiKey
from tests.fault.hostile_requests import resident
from tests.support.broker_process import BrokerProcess
from tests.support.raw_batch import raw_batch
from tests.support.wire_client import WireClient

LARGEST = 100 * 1024 * 1024
"""Bytes of a request that are let in: Kafka's ``socket.request.max.bytes``."""
ANNOUNCED = (2**31 - 1, LARGEST)
RECORDS = raw_batch([b"v" * 100] * 10)


class Served(NamedTuple):
    """How the client that behaves was served: seconds of each request, ascending."""

    seconds: list[float]
    memory_before: int
    memory: int

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 requests were answered."""
        return self.seconds[len(self.seconds) * 99 // 100]


def run(idle: int, prefixes: int, asked: int) -> Served:
    """Hold the connections, and send ``asked`` requests beside them."""
    with (
        tempfile.TemporaryDirectory(prefix="kprod-hostile-") as folder,
        BrokerProcess(Path(folder) / "data", {"t": 1}) as broker,
        WireClient(broker.bootstrap_servers) as well,
    ):
        before = resident(broker.pid)
        with _taking_room(broker.port, idle, prefixes):
            seconds = sorted(_asked(well) for _ in range(asked))
            return Served(seconds, before, resident(broker.pid))


@contextmanager
def _taking_room(port: int, idle: int, prefixes: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(idle):
            stack.enter_context(_connection(port))
        for number in range(prefixes):
            connection = stack.enter_context(_connection(port))
            connection.sendall(struct.pack(">i", ANNOUNCED[number % len(ANNOUNCED)]))
        yield


def _connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _asked(client: WireClient) -> float:
    entry = {"index": 0, "records": RECORDS}
    topic = {"name": "t", "partition_data": [entry]}
    started = time.perf_counter()
    client.send(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 5_000, "topic_data": [topic]})
    _, answer = client.receive(ApiKey.PRODUCE, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return time.perf_counter() - started


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = run(int(sys.argv[1]), int(sys.argv[2]), 5_000)
    median = found.seconds[len(found.seconds) // 2]
    print(f"p50 {1000 * median:.1f} ms, p99 {1000 * found.p99:.1f} ms")
    print(f"{found.memory_before / 1e6:.0f} MB before, {found.memory / 1e6:.0f} MB with them")
