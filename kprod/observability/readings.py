"""Metrics of producers as readings, with names, kinds, units, descriptions and labels."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from kprod.config import ProducerConfig
from kprod.lock import Lock
from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_GAUGES,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    Gauge,
    Metric,
)

log = logging.getLogger(__name__)


class Measured(Protocol):
    """A producer with metrics: ``KafkaProducer``, or an equivalent."""

    @property
    def config(self) -> ProducerConfig:
        """The configuration, which contains the client id."""

    def metrics(self) -> dict[str, dict[str, float]]:
        """Values by group and name."""


class Measure(NamedTuple):
    """A metric of the table. ``counts``: it only grows. ``label``: ``topic``, ``node`` or none.

    ``group`` is the name of a group of ``producer.metrics()``, without ``-metrics`` and without the
    topic or node.
    """

    group: str
    name: str
    unit: str
    doc: str
    counts: bool
    label: str | None


class Reading(NamedTuple):
    """The value of a metric. ``of`` is its topic or node, if any."""

    measure: Measure
    of: str | None
    value: float


_TABLES: dict[str, tuple[Metric | Gauge, ...]] = {
    "producer": (*PRODUCER_METRICS, *PRODUCER_GAUGES),
    "producer-topic": TOPIC_METRICS,
    "producer-node": NODE_METRICS,
}
_LABELS = {"producer-topic": "topic", "producer-node": "node"}


def _measures(group: str) -> dict[str, Measure]:
    metrics = (metric for metric in _TABLES[group] if not metric.name.endswith("-rate"))
    return {metric.name: _of_row(group, metric) for metric in metrics}


def _of_row(group: str, metric: Metric | Gauge) -> Measure:
    counts = metric.name.endswith("-total")
    return Measure(group, metric.name, metric.unit, metric.doc, counts, _LABELS.get(group))


MEASURES: dict[str, dict[str, Measure]] = {group: _measures(group) for group in _TABLES}
"""Measures by group and name, in the order of the table.

Rates are left out: a monitoring system computes them from totals.
"""


def readings(producer: Measured) -> Iterator[Reading]:
    """All metrics of a producer, in the order of the table of metrics."""
    for group, values in producer.metrics().items():
        kind, _, of = group.partition(".")
        for name, measure in MEASURES.get(kind.removesuffix("-metrics"), {}).items():
            if name in values:
                yield Reading(measure, of.removeprefix("node-") or None, values[name])


class WatchedProducers:
    """Producers by client id, without keeping them alive. Thread-safe.

    Supports the producers of all packages of kprod. Those of drop-in packages have the underlying
    producer as their attribute ``__kprod_producer__``.
    """

    def __init__(self, *producers: object) -> None:
        self._lock = Lock()  # guards replacing the dict, which itself never changes
        self._watched: dict[str, weakref.ref[Measured]] = {}
        self._failed = False
        for producer in producers:
            self.add(producer)

    def add(self, producer: object) -> None:
        """Add a producer. The second one with a client id is named ``<client id>-2``, and so on.

        Raises TypeError for anything but a producer of kprod. A closed producer may be ignored.
        """
        measured: Any = getattr(producer, "__kprod_producer__", producer)
        if measured is None and producer is not None:
            return
        if not isinstance(getattr(measured, "config", None), ProducerConfig):
            raise TypeError(f"expected a producer of kprod, got {type(producer).__qualname__}")
        client_id = str(measured.config.client_id)
        with self._lock:
            living = {n: watched for n, watched in self._watched.items() if watched() is not None}
            if not any(watched() is measured for watched in living.values()):
                names = (f"{client_id}-{number}" for number in itertools.count(2))
                name = next(n for n in itertools.chain([client_id], names) if n not in living)
                living[name] = weakref.ref(measured)
            self._watched = living

    def readings(self) -> Iterator[tuple[str, list[Reading]]]:
        """The readings of each producer that still exists, by client id. Never raises.

        A producer whose metrics cannot be read is left out, and logged the first time, so that the
        application's other metrics can still be read.
        """
        for client_id, reference in self._watched.items():
            producer = reference()
            if producer is None:
                continue
            try:
                found = list(readings(producer))
            except Exception:
                if not self._failed:
                    log.exception("metrics of %r cannot be read; they are left out", client_id)
                self._failed = True
                continue
            yield client_id, found


def prometheus_name(measure: Measure) -> str:
    """The Prometheus name, for example ``kprod_producer_topic_record_send_total``."""
    return f"kprod_{measure.group}_{measure.name}".replace("-", "_")
