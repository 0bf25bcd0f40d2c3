"""Metrics with kafka-python's names, groups and units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_ALSO: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "network-io-rate": lambda m: m["outgoing-byte-rate"] + m["incoming-byte-rate"],
    "throttle-time-avg": lambda m: m["produce-throttle-time-avg"],
    "throttle-time-max": lambda m: m["produce-throttle-time-max"],
}


class MetricName(NamedTuple):
    """The name of a metric, as ``kafka.metrics.MetricName``; ``tags`` are pairs."""

    name: str
    group: str
    description: str | None
    tags: tuple[tuple[str, str], ...]


class KafkaMetric:
    """A metric's value at one moment. Immutable."""

    def __init__(self, metric_name: MetricName, value: float) -> None:
        self.metric_name = metric_name
        self._value = value

    def value(self) -> float:
        """The number."""
        return self._value


def by_group(groups: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The metrics by group and name. They have kprod's names, and also kafka-python's."""
    named = {group: dict(metrics) for group, metrics in groups.items()}
    own = named.get("producer-metrics")
    if own is not None:
        own.update({name: read(own) for name, read in _ALSO.items()})
        count = sum(map(len, named.values())) + 1
        named["kafka-metrics-count"] = {"count": float(count)}
    return named


def by_name(groups: Mapping[str, Mapping[str, float]], client_id: str) -> dict[MetricName, Any]:
    """The metrics of ``by_group`` by MetricName, as objects with ``value()``."""
    tags = (("client-id", client_id),)
    return {
        (name := MetricName(metric, group, None, tags)): KafkaMetric(name, value)
        for group, metrics in by_group(groups).items()
        for metric, value in metrics.items()
    }
