"""An embedded broker for a measurement, in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kprod.broker.log_reader import create_topic
from kprod.cli.demo.broker_process import BrokerProcess
from kprod.cli.perf.cluster import Cluster


@contextmanager
def embedded_broker(topic: str, partitions: int) -> Iterator[Cluster]:
    """A broker with this topic, which is gone after the block, and so is its log.

    A process of its own: what it costs is no part of the producer's figures. Raises DemoFailure
    when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="kprod-", ignore_cleanup_errors=True) as work:
        broker = BrokerProcess(Path(work) / "data", Path(work) / "broker.log")
        try:
            address = broker.address()
            create_topic(address, topic, partitions)
            yield Cluster(address, broker.pid)
        finally:
            broker.stop()
