"""All metrics of a producer at one moment: what is counted, and what is looked up"""

from __future__ import annotations

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata
from kprod.metrics import ProducerMetrics
from kprod.sender.network import Network


def measured(
    metrics: ProducerMetrics,
    accumulator: RecordAccumulator,
    metadata: Metadata,
    network: Network,
    now: float,
) -> dict[str, dict[str, float]]:
    """The metrics by group and name. Any thread. ``now`` is on the sender's clock."""
    pool = accumulator.pool
    gauges = {
        "buffer-total-bytes": pool.total,
        "buffer-available-bytes": pool.available,
        "waiting-threads": pool.waiting,
        "bufferpool-wait-time-ns-total": 1e9 * pool.waited,
        "requests-in-flight": network.in_flight,
        "connection-count": metrics.connections,
        "metadata-age": metadata.age(now),
    }
    return metrics.groups(now, gauges)
