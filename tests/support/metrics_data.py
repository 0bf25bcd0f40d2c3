"""Metrics of a serialized ``MetricsData``, parsed by OpenTelemetry's own library."""

from __future__ import annotations

from typing import Any, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


class PushedMetric(NamedTuple):
    """One data point. ``kind`` is "gauge", "delta" or "cumulative"; times in nanoseconds."""

    name: str
    unit: str
    kind: str
    value: float
    since: int
    at: int
    attributes: dict[str, str]


def read_metrics(data: bytes) -> list[PushedMetric]:
    """Every metric, in order; each must have one data point and no unknown field."""
    parsed = MetricsData.FromString(data)
    assert parsed.SerializeToString(deterministic=True) == data
    return [
        _read(metric)
        for of_resource in parsed.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
    ]


def read_resource(data: bytes) -> dict[str, str]:
    (of_resource,) = MetricsData.FromString(data).resource_metrics
    return _attributes(of_resource.resource.attributes)


def read_scope(data: bytes) -> tuple[str, str]:
    (of_resource,) = MetricsData.FromString(data).resource_metrics
    scope = of_resource.scope_metrics[0].scope
    return scope.name, scope.version


def _read(metric: Any) -> PushedMetric:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    (point,) = data.data_points
    if kind == "sum":
        assert data.is_monotonic
        kind = {DELTA: "delta", CUMULATIVE: "cumulative"}[data.aggregation_temporality]
    attributes = _attributes(point.attributes)
    times = point.start_time_unix_nano, point.time_unix_nano
    return PushedMetric(metric.name, metric.unit, kind, point.as_double, *times, attributes)


def _attributes(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}
