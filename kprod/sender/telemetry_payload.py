"""A producer's metrics as brokers ask for them: the chosen ones, under Kafka's names for telemetry

The names are made as Kafka's ``TelemetryMetricNamingConvention`` makes them: the metric
``connection-creation-rate`` of the group ``producer-metrics`` is
``org.apache.kafka.producer.connection.creation.rate``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_GAUGES,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    Gauge,
    Metric,
)
from kprod.version import VERSION
from kprod.wire.otlp import Point, Temporality, gauge, metrics_data, monotonic_sum

Groups: TypeAlias = Mapping[str, Mapping[str, float]]

DOMAIN = "org.apache.kafka."
EVERYTHING = "*"
SCOPE = ("kprod", VERSION)
LENGTHS_BYTES = 12
"""Bytes for lengths of messages around metrics, beyond those around none."""
METRIC_FRAME_BYTES = 6
"""Tag and length of each."""


class _Group(NamedTuple):
    prefix: str
    attribute: str | None
    units: dict[str, str]


def _units(rows: Sequence[Metric | Gauge]) -> dict[str, str]:
    return {row.name: row.unit for row in rows}


# The whole producer first: what does not fit is left out from the end.
_GROUPS = {
    "producer-metrics": _Group(
        "producer.", None, {**_units(PRODUCER_METRICS), **_units(PRODUCER_GAUGES)}
    ),
    "producer-node-metrics": _Group("producer.node.", "node_id", _units(NODE_METRICS)),
    "producer-topic-metrics": _Group("producer.topic.", "topic", _units(TOPIC_METRICS)),
}
_ORDER = list(_GROUPS)


class Wanted(NamedTuple):
    """A broker's subscription: prefixes of names, the kind of sums, and the largest size."""

    metrics: tuple[str, ...]
    delta: bool
    max_bytes: int


class _Found(NamedTuple):
    key: tuple[str, str]  # group and name
    name: str
    unit: str
    attributes: dict[str, str]
    value: float


class TelemetryPayload:
    """Writes metrics, and remembers of sums what brokers have taken. Not thread-safe.

    ``began`` is when the producer was made, in nanoseconds since the epoch; ``resource`` what is
    told of the producer as a whole.
    """

    def __init__(self, began: int, resource: Mapping[str, str]) -> None:
        self._began = began
        self._resource = resource
        self._frame_bytes = len(metrics_data(resource, SCOPE, ())) + LENGTHS_BYTES
        self._taken: dict[tuple[str, str], float] = {}
        self._taken_at = began
        self._written: dict[tuple[str, str], float] = {}
        self._written_at = began

    def write(self, groups: Groups, wanted: Wanted, now: int) -> bytes:
        """A ``MetricsData`` of at most ``wanted.max_bytes`` bytes: what does not fit is left out.

        The metrics of the whole producer come first, then those of brokers, then of topics.
        """
        self._written, self._written_at = {}, now
        metrics: list[bytes] = []
        left = wanted.max_bytes - self._frame_bytes
        for found in _chosen(groups, wanted.metrics):
            metric = self._metric(found, wanted.delta, now)
            left -= len(metric) + METRIC_FRAME_BYTES
            if left < 0:
                break
            metrics.append(metric)
            if _grows(found):
                self._written[found.key] = found.value
        return metrics_data(self._resource, SCOPE, metrics)

    def taken(self) -> None:
        """A broker has what was written last: the next differences begin there."""
        # Sums that were left out go on counting from their last value that a broker has.
        self._taken.update(self._written)
        self._taken_at = self._written_at

    def _metric(self, found: _Found, delta: bool, now: int) -> bytes:
        attributes = found.attributes
        if not _grows(found):
            return gauge(found.name, found.unit, Point(found.value, now, now, attributes))
        if not delta:
            point = Point(found.value, self._began, now, attributes)
            return monotonic_sum(found.name, found.unit, point, Temporality.CUMULATIVE)
        before = self._taken.get(found.key, 0.0)
        # A topic that was forgotten meanwhile counts from 0 again.
        grown = found.value - before if found.value >= before else found.value
        point = Point(grown, self._taken_at, now, attributes)
        return monotonic_sum(found.name, found.unit, point, Temporality.DELTA)


def _grows(found: _Found) -> bool:
    return found.key[1].endswith("-total")


def _chosen(groups: Groups, prefixes: tuple[str, ...]) -> Iterator[_Found]:
    chosen = tuple("" if prefix == EVERYTHING else prefix for prefix in prefixes)
    for group in sorted(groups, key=_rank):
        kind, _, of = group.partition(".")
        if kind not in _GROUPS:
            continue
        prefix, attribute, units = _GROUPS[kind]
        attributes = {} if attribute is None else {attribute: of}
        for metric, value in groups[group].items():
            name = f"{DOMAIN}{prefix}{metric.replace('-', '.')}"
            if name.startswith(chosen):
                unit = units.get(metric, "")
                yield _Found((group, metric), name, unit, attributes, value)


def _rank(group: str) -> int:
    kind = group.partition(".")[0]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
