"""What a Python worker of Spark spends on each task: its garbage collections, and late packets."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from kprod.broker import EmbeddedBroker
from kprod.spark import partition_writer
from kprod.spark.python_worker import acknowledge_at_once

FREEZE = """
import gc
from kprod.spark.python_worker import freeze_modules
freeze_modules()
first = gc.get_freeze_count()
of_a_task = [[] for _ in range(1_000)]
freeze_modules()
print(first, gc.get_freeze_count() - first)
"""


@pytest.mark.parametrize("reused", [True, False])
def test_modules_are_frozen_once_and_only_in_a_worker_that_spark_uses_again(reused: bool) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if reused:
        environment["SPARK_REUSE_WORKER"] = "1"
    told = subprocess.run(
        [sys.executable, "-c", FREEZE],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    first, later = map(int, told.stdout.split())
    assert (first > 10_000, later <= 0) == (reused, True)


def test_the_workers_of_a_job_are_frozen(cluster: SparkSession) -> None:
    with EmbeddedBroker(topics={"frozen": 1}) as broker:
        writer = partition_writer("frozen", bootstrap_servers=broker.bootstrap_servers)

        def frozen(items: Iterable[bytes]) -> Iterable[int]:
            yield from (gc.get_freeze_count() for _ in writer(items))

        counts = cluster.sparkContext.parallelize([b"a", b"b"], 2).mapPartitions(frozen).collect()
    assert min(counts) > 10_000


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection within this machine."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        yield client, stack.enter_context(listening.accept()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has the option, and the delay")
def test_packets_of_this_machine_are_acknowledged_at_once(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    _, server = connection
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert not server.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    acknowledge_at_once()
    assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_sockets_go_on_blocking_where_new_ones_have_a_timeout(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    """A row's function may set one; Spark reads its own socket without."""
    _, server = connection
    socket.setdefaulttimeout(30)
    try:
        acknowledge_at_once()
    finally:
        socket.setdefaulttimeout(None)
    assert os.get_blocking(server.fileno())


def test_what_is_open_stays_open(connection: tuple[socket.socket, socket.socket]) -> None:
    client, server = connection
    with socket.socket() as unconnected, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        acknowledge_at_once()
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        unconnected.bind(("127.0.0.1", 0))
        datagrams.bind(("127.0.0.1", 0))
