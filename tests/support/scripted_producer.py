"""A real producer connected to scripted brokers."""

from __future__ import annotations

from typing import Any

from kprod import KafkaProducer
from kprod.transport.memory import MemoryBackend
from tests.support.scripted_cluster import ScriptedCluster


def cluster_of(partitions: int = 1) -> ScriptedCluster:
    """One broker, leader of these partitions of topic "t"."""
    cluster = ScriptedCluster(topics={"t": [1] * partitions})
    cluster.add(1)
    return cluster


def producer_before(cluster: ScriptedCluster, **options: Any) -> KafkaProducer:
    """A producer that bootstraps from ``broker-1``, which need not exist, in memory."""
    options = {
        "bootstrap_servers": "broker-1:9092",
        "transport": lambda **_: MemoryBackend(cluster.listeners),
        **options,
    }
    return KafkaProducer(**options)
