"""A producer's metrics as plain readings: names, kinds, units, words and labels"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_GAUGES,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    Gauge,
    Metric,
)


class Measured(Protocol):
    """A producer, as far as it can be measured."""

    def metrics(self) -> dict[str, dict[str, float]]:
        """Numbers by group and name."""


class Reading(NamedTuple):
    """One number. ``counts``: it only grows. ``labels``: the topic or node, if it is of one."""

    name: str
    unit: str
    doc: str
    counts: bool
    labels: tuple[tuple[str, str], ...]
    value: float


_TABLES: dict[str, tuple[Metric | Gauge, ...]] = {
    "producer-metrics": (*PRODUCER_METRICS, *PRODUCER_GAUGES),
    "producer-topic-metrics": TOPIC_METRICS,
    "producer-node-metrics": NODE_METRICS,
}
_LABELS = {"producer-topic-metrics": "topic", "producer-node-metrics": "node"}


def readings(producer: Measured) -> Iterator[tuple[str, Reading]]:
    """Every number of a producer with its group, in the order of the table of metrics.

    Rates and averages are left out where a total is told: whoever stores totals computes them.
    """
    for group, values in producer.metrics().items():
        kind, _, of = group.partition(".")
        label = _LABELS.get(kind)
        labels = ((label, of.removeprefix("node-")),) if label else ()
        for metric in _TABLES.get(kind, ()):
            name = metric.name
            if name in values and not name.endswith("-rate"):
                counts = name.endswith("-total") and name != "buffer-total-bytes"
                yield kind, Reading(name, metric.unit, metric.doc, counts, labels, values[name])
