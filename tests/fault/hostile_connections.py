"""Connections to the embedded broker that only take room: ``python -m
tests.fault.hostile_connections IDLE PREFIXES``.

So many connections say nothing, and so many announce a request of 2 GiB less a byte, or of the
largest size that is let in, and send none of it. Then eight make topics of thousands of partitions
at once, and a few begin a large request and leave it. A client that behaves goes on meanwhile, and
tells how long its requests took; the memory of the broker's process is told with it.
"""

from __future__ import annotations

import resource
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kprod.broker.protocol.api_key import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.held_resources import resident_bytes
from tests.support.raw_batch import raw_batch
from tests.support.wire_client import WireClient

LARGEST = 100 * 1024 * 1024
"""Bytes of a request that are let in: Kafka's ``socket.request.max.bytes``."""
LET_GO = 90
"""Seconds within which an unfinished request has to cost its connection."""
POLICY_VIOLATION = 44
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
        before = resident_bytes(broker.pid)
        with _taking_room(broker.port, idle, prefixes):
            seconds = sorted(_asked(well) for _ in range(asked))
            return Served(seconds, before, resident_bytes(broker.pid))


def run_changes(connections: int, partitions: int) -> Served:
    """Have each connection make a topic of so many partitions, and send requests until they did."""
    with (
        tempfile.TemporaryDirectory(prefix="kprod-hostile-") as folder,
        BrokerProcess(Path(folder) / "data", {"t": 1}) as broker,
        WireClient(broker.bootstrap_servers) as well,
        ExitStack() as stack,
    ):
        before, seconds = resident_bytes(broker.pid), [_asked(well)]
        changing = [
            stack.enter_context(WireClient(broker.bootstrap_servers)) for _ in range(connections)
        ]
        for number, client in enumerate(changing):
            topic = {"name": f"x{number}", "num_partitions": partitions, "replication_factor": 1}
            client.send(ApiKey.CREATE_TOPICS, 5, {"topics": [topic]})
        waiting = {client.fileno(): client for client in changing}
        while waiting:
            seconds.append(_asked(well))
            for fd in select.select(list(waiting), [], [], 0)[0]:
                _, answer = waiting.pop(fd).receive(ApiKey.CREATE_TOPICS, 5)
                assert {topic.error_code for topic in answer.topics} <= {0, POLICY_VIOLATION}
        return Served(sorted(seconds), before, resident_bytes(broker.pid))


def run_unfinished(connections: int, size: int) -> Served:
    """Have each begin a request of 100 MB, send so many bytes, and wait to be let go."""
    with (
        tempfile.TemporaryDirectory(prefix="kprod-hostile-") as folder,
        BrokerProcess(Path(folder) / "data", {"t": 1}) as broker,
        WireClient(broker.bootstrap_servers) as well,
        ExitStack() as stack,
    ):
        before, seconds = resident_bytes(broker.pid), [_asked(well)]
        begun = [stack.enter_context(_connection(broker.port)) for _ in range(connections)]
        for connection in begun:
            connection.sendall(struct.pack(">i", LARGEST) + bytes(size))
        started = time.monotonic()
        while not all(select.select([each], [], [], 0)[0] for each in begun):
            assert time.monotonic() - started < LET_GO
            seconds.append(_asked(well))
            time.sleep(0.1)
        return Served(sorted(seconds), before, resident_bytes(broker.pid))


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
    for name, found in (
        ("room", run(int(sys.argv[1]), int(sys.argv[2]), 5_000)),
        ("changes", run_changes(8, 10_000)),
        ("unfinished", run_unfinished(4, 50_000_000)),
    ):
        median = found.seconds[len(found.seconds) // 2]
        told = f"p50 {1000 * median:.1f} ms, p99 {1000 * found.p99:.1f} ms"
        print(f"{name}: {told}, {1000 * found.seconds[-1]:.0f} ms at most")
        print(f"  {found.memory_before / 1e6:.0f} MB before, {found.memory / 1e6:.0f} MB then")
