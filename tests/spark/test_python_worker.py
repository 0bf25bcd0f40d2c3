"""Garbage collection, sockets and logs of Spark's Python workers."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kprod.broker import EmbeddedBroker
from kprod.errors import UnsupportedVersionError
from kprod.spark.python_worker import UNCHECKED, acknowledge_at_once, check_rows_ended
from tests.support.programs import run_python

pytestmark = pytest.mark.full

FREEZE = """
import gc
from kprod.spark.shard_rows import TaskRows
TaskRows(())
first = gc.get_freeze_count()
of_a_task = [[] for _ in range(1_000)]
TaskRows(())
print(first, gc.get_freeze_count() - first)
"""


@pytest.mark.parametrize("reused", [True, False])
def test_modules_are_frozen_once_and_only_in_reused_workers(reused: bool) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if reused:
        environment["SPARK_REUSE_WORKER"] = "1"
    output = run_python("-c", FREEZE, env=environment).stdout
    first, later = map(int, output.split())
    assert (first > 10_000, later <= 0) == (reused, True)


def test_exactly_once_needs_a_spark_that_reports_the_end_of_the_rows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # what the next line sets
    TaskContext()  # in a task, but in no worker
    check_rows_ended()
    assert UNCHECKED in caplog.text
    with pytest.raises(UnsupportedVersionError, match="exactly-once delivery is not possible"):
        check_rows_ended(required=True)


def test_spark_collects_the_logs_of_tasks_and_commits(cluster: SparkSession) -> None:
    setting = "spark.sql.pyspark.worker.logging.enabled"
    cluster.conf.set(setting, "true")
    try:
        with EmbeddedBroker(topics={"logged": 1}) as broker:
            rows = cluster.range(0, 10, 1, 2).selectExpr("cast(id as string) as value")
            written = rows.write.format("kprod").option("topic", "logged").mode("append")
            written = written.option("kafka.bootstrap.servers", broker.bootstrap_servers)
            written.option("delivery", "exactly_once").save()
        logs = [(row.logger, row.msg) for row in cluster.tvf.python_worker_logs().collect()]
    finally:
        cluster.conf.unset(setting)
    shards = [text for logger, text in logs if logger == "kprod" and "committed, 5" in text]
    assert len(shards) == 2
    (batch,) = [text for logger, text in logs if logger == "kprod.spark.data_source"]
    assert "10 records" in batch
    assert "2 committed, 0 already there" in batch


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection within this machine."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        yield client, stack.enter_context(listening.accept()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has the option, and the delay")
def test_loopback_packets_are_acknowledged_at_once(
    connection: tuple[socket.socket, socket.socket],
) -> None:
    _, server = connection
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert not server.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    acknowledge_at_once()
    assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_sockets_stay_open_and_blocking(connection: tuple[socket.socket, socket.socket]) -> None:
    client, server = connection
    with socket.socket() as unconnected, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        socket.setdefaulttimeout(30)
        try:
            acknowledge_at_once()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(server.fileno())
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        unconnected.bind(("127.0.0.1", 0))
        datagrams.bind(("127.0.0.1", 0))
