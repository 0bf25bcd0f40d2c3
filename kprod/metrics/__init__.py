"""What a producer counts, under Kafka's own metric names."""

from __future__ import annotations

from kprod.metrics.producer_metrics import ProducerMetrics

__all__ = ["ProducerMetrics"]
