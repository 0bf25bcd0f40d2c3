"""A producer, as applications have it, before brokers that do as a test tells them."""

from __future__ import annotations

from typing import Any

from kprod import KafkaProducer
from kprod.transport.memory import MemoryBackend
from tests.support.scripted_cluster import ScriptedCluster


def cluster_of(partitions: int = 1) -> ScriptedCluster:
    """One broker, which leads so many partitions of the topic "t"."""
    cluster = ScriptedCluster(topics={"t": [1] * partitions})
    cluster.add(1)
    return cluster


def producer_before(cluster: ScriptedCluster, **options: Any) -> KafkaProducer:
    """Bootstraps from ``broker-1``, be it there or not; everything happens within the process."""
    options = {
        "bootstrap_servers": "broker-1:9092",
        "transport": lambda **_: MemoryBackend(cluster.listeners),
        **options,
    }
    return KafkaProducer(**options)
