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


class Told(NamedTuple):
    """One number of the table. ``counts``: it only grows. ``label``: what it is a number of.

    ``group`` is a group of ``producer.metrics()`` without ``-metrics`` and without topic or node.
    """

    group: str
    name: str
    unit: str
    doc: str
    counts: bool
    label: str | None


class Reading(NamedTuple):
    """The value of one number; ``of`` is the topic or the node, if it is of one."""

    told: Told
    of: str | None
    value: float


_TABLES: dict[str, tuple[Metric | Gauge, ...]] = {
    "producer": (*PRODUCER_METRICS, *PRODUCER_GAUGES),
    "producer-topic": TOPIC_METRICS,
    "producer-node": NODE_METRICS,
}
_LABELS = {"producer-topic": "topic", "producer-node": "node"}


def _told(group: str) -> dict[str, Told]:
    metrics = (metric for metric in _TABLES[group] if not metric.name.endswith("-rate"))
    return {metric.name: _of_row(group, metric) for metric in metrics}


def _of_row(group: str, metric: Metric | Gauge) -> Told:
    counts = metric.name.endswith("-total")
    return Told(group, metric.name, metric.unit, metric.doc, counts, _LABELS.get(group))


TOLD: dict[str, dict[str, Told]] = {group: _told(group) for group in _TABLES}
"""By group and name, in the order of the table.

Rates are left out: a monitoring system computes them from totals.
"""


def readings(producer: Measured) -> Iterator[Reading]:
    """Every number of a producer, in the order of the table of metrics."""
    for group, values in producer.metrics().items():
        kind, _, of = group.partition(".")
        for name, told in TOLD.get(kind.removesuffix("-metrics"), {}).items():
            if name in values:
                yield Reading(told, of.removeprefix("node-") or None, values[name])


def prometheus_name(told: Told) -> str:
    """For instance ``kprod_producer_topic_record_send_total``."""
    return f"kprod_{told.group}_{told.name}".replace("-", "_")
