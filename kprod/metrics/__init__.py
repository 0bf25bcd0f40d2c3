"""The metrics of a producer, with Kafka's names."""

from __future__ import annotations

from kprod.metrics.producer_metrics import ProducerMetrics

__all__ = ["ProducerMetrics"]
