"""The names that Prometheus knows a producer's numbers by"""

from __future__ import annotations

from kprod.observability.readings import Told


def prometheus_name(told: Told) -> str:
    """For instance ``kprod_producer_topic_record_send_total``."""
    return f"kprod_{told.group}_{told.name}".replace("-", "_")
