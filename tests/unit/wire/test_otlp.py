"""Metrics as bytes, read by OpenTelemetry's own library."""

from __future__ import annotations

from kprod.wire.telemetry import metric, metrics_data
from tests.support.metrics_data import ToldMetric, read_metrics, read_resource, read_scope

BEGIN, NOW = 1_700_000_000_000_000_000, 1_700_000_300_000_000_000
SCOPE = ("kprod", "1.2")


def test_gauges_and_sums() -> None:
    node = {"node_id": "node-1"}
    written = metrics_data(
        {},
        SCOPE,
        [
            metric("a.rate", "records/s", 0.5, NOW, node),
            metric("b", "bytes", 7.0, NOW, {}, since=BEGIN, delta=True),
            metric("c", "", 0.0, NOW, {}, since=BEGIN),
        ],
    )
    assert read_metrics(written) == [
        ToldMetric("a.rate", "records/s", "gauge", 0.5, 0, NOW, node),
        ToldMetric("b", "bytes", "delta", 7.0, BEGIN, NOW, {}),
        ToldMetric("c", "", "cumulative", 0.0, BEGIN, NOW, {}),
    ]


def test_resource_and_scope() -> None:
    resource = {"transactional_id": "ü" * 200, "other": ""}
    written = metrics_data(resource, SCOPE, [])
    assert read_resource(written) == resource
    assert read_scope(written) == SCOPE
    assert read_metrics(metrics_data({}, SCOPE, [])) == []
