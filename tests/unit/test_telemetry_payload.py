"""What is told of a producer's metrics: which, by what names, and what sums count from."""

from __future__ import annotations

import pytest

from kprod.metrics import ProducerMetrics
from kprod.telemetry import TelemetryPayload
from kprod.wire.telemetry import NO_ID, Subscription
from tests.support.metrics_data import ToldMetric, read_metrics

BEGIN, NOW, LATER = 1_000, 2_000, 3_000
LARGE = 1_000_000

GROUPS = {
    "producer-topic-metrics.a.b-c": {"record-send-total": 3.0, "compression-rate": 0.5},
    "producer-node-metrics.node-1": {"request-latency-avg": 1.5},
    "producer-metrics": {"connection-creation-rate": 0.25, "connection-creation-total": 2.0},
    "another-group": {"of-which-nothing-is-known": 1.0},
}


def wanted(*metrics: str, delta: bool = False, max_bytes: int = LARGE) -> Subscription:
    return Subscription(0, NO_ID, 7, (), 60_000, max_bytes, delta, metrics, 0)


def told(
    groups: dict[str, dict[str, float]],
    asked: Subscription,
    payload: TelemetryPayload | None = None,
) -> list[ToldMetric]:
    return read_metrics((payload or TelemetryPayload(BEGIN, {})).write(groups, asked, NOW))


def test_names_units_and_attributes_are_those_of_kafka() -> None:
    domain = "org.apache.kafka.producer"
    assert told(GROUPS, wanted("*")) == [
        ToldMetric(
            f"{domain}.connection.creation.rate", "connections/s", "gauge", 0.25, 0, NOW, {}
        ),
        ToldMetric(
            f"{domain}.connection.creation.total", "connections", "cumulative", 2.0, BEGIN, NOW, {}
        ),
        ToldMetric(
            f"{domain}.node.request.latency.avg", "ms", "gauge", 1.5, 0, NOW, {"node_id": "node-1"}
        ),
        ToldMetric(
            f"{domain}.topic.record.send.total",
            "records",
            "cumulative",
            3.0,
            BEGIN,
            NOW,
            {"topic": "a.b-c"},
        ),
        ToldMetric(
            f"{domain}.topic.compression.rate", "ratio", "gauge", 0.5, 0, NOW, {"topic": "a.b-c"}
        ),
    ]


STANDARD = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "produce.throttle.time.avg",
    "produce.throttle.time.max",
    "record.queue.time.avg",
    "record.queue.time.max",
}


def test_every_metric_that_the_kip_asks_of_a_producer_is_told() -> None:
    metrics = ProducerMetrics()
    metrics.node(1)
    names = {one.name for one in told(metrics.groups(0.0), wanted("*"))}
    assert {f"org.apache.kafka.producer.{name}" for name in STANDARD} <= names


@pytest.mark.parametrize(
    ("prefixes", "count"),
    [
        ((), 0),
        (("",), 5),
        (("org.apache.kafka.consumer.",), 0),
        (("org.apache.kafka.producer.connection.creation",), 2),
        (("org.apache.kafka.producer.node.", "org.apache.kafka.producer.topic.record"), 2),
    ],
)
def test_what_was_subscribed_to_is_told(prefixes: tuple[str, ...], count: int) -> None:
    assert len(told(GROUPS, wanted(*prefixes))) == count


def sums(payload: TelemetryPayload, value: float, now: int) -> ToldMetric:
    groups = {"producer-metrics": {"record-send-total": value}}
    (one,) = read_metrics(payload.write(groups, wanted("*", delta=True), now))
    return one


def test_differences_count_from_what_a_broker_has_taken() -> None:
    payload = TelemetryPayload(BEGIN, {})
    first = sums(payload, 5, NOW)
    assert (first.kind, first.value, first.since, first.at) == ("delta", 5, BEGIN, NOW)
    again = sums(payload, 7, LATER)  # the first was not taken
    assert (again.value, again.since) == (7, BEGIN)
    payload.taken()
    third = sums(payload, 10, LATER + 1)
    assert (third.value, third.since) == (3, LATER)


def test_a_topic_that_was_forgotten_counts_from_nothing() -> None:
    payload = TelemetryPayload(BEGIN, {})
    sums(payload, 5, NOW)
    payload.taken()
    assert sums(payload, 2, LATER).value == 2


def test_what_does_not_fit_is_left_out_beginning_with_topics() -> None:
    whole = TelemetryPayload(BEGIN, {}).write(GROUPS, wanted("*"), NOW)
    counts = []
    for limit in range(len(whole) + 300):
        payload = TelemetryPayload(BEGIN, {})
        written = payload.write(GROUPS, wanted("*", max_bytes=limit), NOW)
        names = [one.name for one in read_metrics(written)]
        assert len(written) <= limit or not names
        counts.append(len(names))
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4, 5}
