"""Client metrics (KIP-714): when they are pushed, what follows errors, and their names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kprod.errors import ConnectionLost
from kprod.metrics import ProducerMetrics
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.deadlines import Deadlines
from kprod.telemetry import SHORTEST_INTERVAL, Telemetry, TelemetryPayload
from kprod.wire.telemetry import NO_ID, PushReply, Subscription
from kprod.wire.versions import ApiKey, ApiVersions
from tests.support.fake_clock import FakeClock
from tests.support.metrics_data import PushedMetric, read_metrics

OWN_ID = bytes(range(16))
BOTH = ApiVersions({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 3)})
FOREVER = float("inf")
LOST = ConnectionLost("it is gone")


def subscription(
    error: int = 0,
    *,
    metrics: tuple[str, ...] = ("*",),
    interval_ms: int = 60_000,
    instance_id: bytes | None = OWN_ID,
) -> Subscription:
    return Subscription(error, instance_id, 7, (), interval_ms, 1_000, True, metrics, 0)


def unsupported(jitter: float = 1.5) -> Telemetry:
    """Telemetry without a broker that supports it; it sends nothing."""

    def draw(lowest: float, highest: float) -> float:
        assert (lowest, highest) == (0.5, 1.5)
        return jitter

    network = SimpleNamespace(log=ConnectionLog("telemetry"), usable_for=lambda *_: None)
    sender: Any = SimpleNamespace(
        network=network, deadlines=Deadlines(), clock=FakeClock(), loop_owner=None
    )
    measure: Any = None
    return Telemetry(sender, measure, {}, draw)


def telemetry(jitter: float = 1.5) -> Telemetry:
    """Telemetry with a broker that supports it, and a fixed jitter."""
    client = unsupported(jitter)
    client.on_api_versions(BOTH)
    return client


def subscribed(at: float = 10.0, *, jitter: float = 1.5) -> Telemetry:
    client = telemetry(jitter)
    client.subscribed(subscription(), at)
    return client


def due_in(client: Telemetry, now: float) -> float:
    return max(0.0, client.due_at - now)


ASK, PUSH = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
OLD, NEW = (0, 0), (1, 2)


@pytest.mark.parametrize(
    "ranges", [{}, {ASK: OLD}, {PUSH: OLD}, {ASK: NEW, PUSH: OLD}, {ASK: OLD, PUSH: NEW}]
)
def test_nothing_is_due_until_a_broker_supports_both_requests(
    ranges: dict[int, tuple[int, int]],
) -> None:
    client = unsupported()
    client.on_api_versions(ApiVersions(ranges))
    assert due_in(client, 5) == FOREVER
    client.on_api_versions(BOTH)
    assert due_in(client, 5) == 0
    client.on_api_versions(ApiVersions({}))  # another broker, of an older release
    assert due_in(client, 5) == 0


def test_the_client_instance_id_is_the_first_one_assigned() -> None:
    client = telemetry()
    assert client.instance_id == NO_ID
    assert not client.identified.is_open
    client.subscribed(subscription(), 0)
    assert client.identified.is_open
    client.subscribed(subscription(instance_id=None), 1)
    assert client.instance_id == OWN_ID
    without_id = telemetry()
    without_id.subscribed(subscription(instance_id=None), 0)
    assert without_id.over


@pytest.mark.parametrize("jitter", [0.5, 1.5])
def test_only_the_first_push_is_jittered(jitter: float) -> None:
    client = subscribed(10, jitter=jitter)
    assert due_in(client, 10) == 60 * jitter
    client.pushed(PushReply(0, 0), 200, last=False)
    assert (due_in(client, 200), due_in(client, 230)) == (60, 30)
    assert client.subscription is not None
    wants_nothing = telemetry()
    wants_nothing.subscribed(subscription(metrics=()), 300)
    assert wants_nothing.subscription is None
    assert due_in(wants_nothing, 300) == 60, "requested again after the interval"


@pytest.mark.parametrize(("interval_ms", "seconds"), [(1, SHORTEST_INTERVAL), (0, 300), (-1, 300)])
def test_the_interval_has_the_minimum_and_the_default_of_apache_kafka(
    interval_ms: int, seconds: float
) -> None:
    client = telemetry(0.5)
    client.subscribed(subscription(interval_ms=interval_ms), 10)
    assert due_in(client, 10) == pytest.approx(seconds / 2)
    client.pushed(PushReply(0, 0), 11, last=False)
    assert due_in(client, 11) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("codes", "due"),
    [
        ((117, 76), 0),  # the subscription has changed
        ((118, 89, -1, 15, 31), 60),
        ((35, 42, 87), FOREVER),  # not retriable
    ],
)
def test_after_an_error_the_subscription_is_renewed(codes: tuple[int, ...], due: float) -> None:
    for code in codes:
        client = subscribed()
        client.pushed(PushReply(code, 0), 100, last=False)
        assert client.subscription is None
        assert due_in(client, 100) == due
        other = telemetry() if due == FOREVER else client
        other.subscribed(subscription(code), 100)  # of the subscription: no immediate retry
        assert due_in(other, 100) == max(due, 60)
        assert other.over is (due == FOREVER)
        assert other.identified.is_open  # waiting for an id has ended


def test_a_lost_subscription_request_is_repeated_but_not_a_lost_push() -> None:
    client = telemetry()
    client.failed(LOST, 100, sent=True)
    assert due_in(client, 100) == 30
    client = subscribed()
    client.failed(LOST, 100, sent=True)
    assert client.subscription is not None
    assert due_in(client, 100) == 60


def test_on_close_a_last_push_is_sent_without_another_subscription() -> None:
    for code in (0, 117, 118, 42):
        client = subscribed()
        client.leave(11)
        client.pushed(PushReply(code, 0), 12, last=False)
        assert client.over is (code != 0)
        assert code or due_in(client, 12) == 0
    lost = subscribed()
    lost.leave(11)
    lost.failed(LOST, 12, sent=True)
    wants_nothing = telemetry()
    wants_nothing.subscribed(subscription(metrics=()), 10)
    wants_nothing.leave(11)
    assert lost.over
    assert wants_nothing.over


BEGIN, NOW, LATER = 1_000, 2_000, 3_000
LARGE = 1_000_000
DOMAIN = "org.apache.kafka.producer."
GROUPS = {
    "producer-topic-metrics.a.b-c": {"record-send-total": 3.0, "compression-rate": 0.5},
    "producer-node-metrics.node-1": {"request-latency-avg": 1.5},
    "producer-metrics": {"connection-creation-rate": 0.25, "connection-creation-total": 2.0},
    "another-group": {"unknown-metric": 1.0},
}


def subscription_to(*metrics: str, delta: bool = False, max_bytes: int = LARGE) -> Subscription:
    return Subscription(0, NO_ID, 7, (), 60_000, max_bytes, delta, metrics, 0)


def exported(
    groups: dict[str, dict[str, float]],
    subscribed_to: Subscription,
    payload: TelemetryPayload | None = None,
) -> list[PushedMetric]:
    return read_metrics((payload or TelemetryPayload(BEGIN, {})).write(groups, subscribed_to, NOW))


def test_metrics_have_the_names_units_and_attributes_of_kafka() -> None:
    topic = {"topic": "a.b-c"}
    rows: list[tuple[str, str, str, float, dict[str, str]]] = [
        ("connection.creation.rate", "connections/s", "gauge", 0.25, {}),
        ("connection.creation.total", "connections", "cumulative", 2.0, {}),
        ("node.request.latency.avg", "ms", "gauge", 1.5, {"node_id": "node-1"}),
        ("topic.record.send.total", "records", "cumulative", 3.0, topic),
        ("topic.compression.rate", "ratio", "gauge", 0.5, topic),
    ]
    assert exported(GROUPS, subscription_to("*")) == [
        PushedMetric(DOMAIN + name, unit, kind, value, BEGIN * (kind != "gauge"), NOW, attributes)
        for name, unit, kind, value, attributes in rows
    ]


STANDARD = {
    *("connection.creation.rate", "connection.creation.total"),
    *("node.request.latency.avg", "node.request.latency.max"),
    *("produce.throttle.time.avg", "produce.throttle.time.max"),
    *("record.queue.time.avg", "record.queue.time.max"),
}


def test_the_producer_metrics_required_by_kip_714_are_exported() -> None:
    metrics = ProducerMetrics()
    metrics.node(1)
    names = {one.name for one in exported(metrics.groups(0.0), subscription_to("*"))}
    assert {DOMAIN + name for name in STANDARD} <= names


@pytest.mark.parametrize(
    ("prefixes", "count"),
    [
        ((), 0),
        (("",), 5),
        (("org.apache.kafka.consumer.",), 0),
        ((f"{DOMAIN}connection.creation",), 2),
        ((f"{DOMAIN}node.", f"{DOMAIN}topic.record"), 2),
    ],
)
def test_only_subscribed_metrics_are_exported(prefixes: tuple[str, ...], count: int) -> None:
    assert len(exported(GROUPS, subscription_to(*prefixes))) == count


def delta(payload: TelemetryPayload, value: float, now: int) -> PushedMetric:
    groups = {"producer-metrics": {"record-send-total": value}}
    (one,) = read_metrics(payload.write(groups, subscription_to("*", delta=True), now))
    return one


def test_deltas_start_at_the_last_acknowledged_push() -> None:
    payload = TelemetryPayload(BEGIN, {})
    first = delta(payload, 5, NOW)
    assert (first.kind, first.value, first.since, first.at) == ("delta", 5, BEGIN, NOW)
    again = delta(payload, 7, LATER)  # the first push was not acknowledged
    assert (again.value, again.since) == (7, BEGIN)
    payload.taken()
    third = delta(payload, 10, LATER + 1)
    assert (third.value, third.since) == (3, LATER)
    payload.taken()
    assert delta(payload, 2, LATER + 2).value == 2, "the counter was reset"


def test_the_delta_of_a_topic_missing_in_the_last_push_starts_at_zero() -> None:
    payload = TelemetryPayload(BEGIN, {})
    everything = subscription_to("*", delta=True)
    topic = {"producer-topic-metrics.a": {"record-send-total": 5.0}}
    exported(topic, everything, payload)
    payload.taken()
    exported({}, everything, payload)
    topic["producer-topic-metrics.a"]["record-send-total"] = 9.0
    assert [one.value for one in exported(topic, everything, payload)] == [9.0]


def test_metrics_beyond_the_size_limit_are_omitted_topics_first() -> None:
    whole = TelemetryPayload(BEGIN, {}).write(GROUPS, subscription_to("*"), NOW)
    counts = []
    for limit in range(len(whole) + 300):
        payload = TelemetryPayload(BEGIN, {})
        written = payload.write(GROUPS, subscription_to("*", max_bytes=limit), NOW)
        names = [one.name for one in read_metrics(written)]
        assert len(written) <= limit or not names
        counts.append(len(names))
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4, 5}
