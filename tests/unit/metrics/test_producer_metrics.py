"""Producer metrics under Kafka's names: totals, and rates over recent windows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kprod.errors import BufferFullError
from kprod.metrics import ProducerMetrics
from kprod.metrics.table import NODE_METRICS, PRODUCER_GAUGES, PRODUCER_METRICS, TOPIC_METRICS
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster, silence
from tests.support.scripted_producer import producer_before

WINDOW = 30.0


@dataclass
class Batch:
    """The counted attributes of a batch: 10 records of 100 bytes, sent after half a second."""

    tp: tuple[str, int] = ("t", 0)
    record_count: int = 10
    size: int = 1061
    uncompressed_bytes: int = 1000
    max_record_size: int = 120
    created_at: float = 1.0
    last_attempt_at: float = 1.5


@pytest.fixture
def metrics() -> ProducerMetrics:
    metrics = ProducerMetrics(2, WINDOW)
    metrics.mark(0)
    return metrics


def producer(metrics: ProducerMetrics, now: float) -> dict[str, float]:
    return metrics.groups(now)["producer-metrics"]


def test_an_unused_producer_has_zeros_everywhere() -> None:
    metrics = ProducerMetrics()
    assert set(producer(metrics, 5).values()) == {0}
    metrics.mark(5)
    assert set(producer(metrics, 6).values()) == {0}
    assert list(metrics.groups(6)) == ["producer-metrics"]


def test_acknowledged_records_batches_and_bytes_are_counted(metrics: ProducerMetrics) -> None:
    metrics.acknowledged(Batch())
    metrics.acknowledged(
        Batch(record_count=20, size=3061, uncompressed_bytes=6000, max_record_size=90)
    )
    named = producer(metrics, 10)
    assert (named["record-send-total"], named["batch-total"]) == (30, 2)
    assert (named["byte-total"], named["batch-size-avg"], named["batch-size-max"]) == (
        4122,
        2061,
        3061,
    )
    assert (named["record-send-rate"], named["byte-rate"]) == (3, 412.2)
    assert named["compression-rate-avg"] == 4000 / 7000
    assert named["record-size-avg"] == pytest.approx(7000 / 30)
    assert named["record-size-max"] == 120
    assert (named["record-queue-time-avg"], named["record-queue-time-max"]) == (500, 500)


def test_each_topic_has_its_own_metrics(metrics: ProducerMetrics) -> None:
    metrics.acknowledged(Batch())
    metrics.failed(Batch(tp=("u", 3)))
    metrics.retried(Batch(tp=("u", 3)))
    groups = metrics.groups(10)
    t, u = groups["producer-topic-metrics.t"], groups["producer-topic-metrics.u"]
    assert (t["record-send-total"], t["record-error-total"], t["record-retry-total"]) == (10, 0, 0)
    assert (u["record-send-total"], u["record-error-total"], u["record-retry-total"]) == (0, 10, 10)
    assert (t["byte-rate"], t["compression-rate"]) == (106.1, 1)
    assert groups["producer-metrics"]["record-error-rate"] == 1


def test_latencies_and_throttling_are_in_milliseconds(metrics: ProducerMetrics) -> None:
    metrics.answered(7, 0.1, 400)
    metrics.answered(7, 0.3, 0)
    for named in (producer(metrics, 5), metrics.groups(5)["producer-node-metrics.node-7"]):
        assert named["request-latency-avg"] == pytest.approx(200)
        assert named["request-latency-max"] == pytest.approx(300)
    named = producer(metrics, 5)
    assert (named["produce-throttle-time-avg"], named["produce-throttle-time-max"]) == (200, 400)


def test_the_traffic_of_all_brokers_is_summed(metrics: ProducerMetrics) -> None:
    for node_id in (-1, 7):
        node = metrics.node(node_id)
        node.sent(300 + node_id)
        metrics.node(node_id).sent(200)
        node.responses += 2
        node.bytes_out += 500
        node.bytes_in += 50
    groups = metrics.groups(10)
    assert set(groups) == {
        "producer-metrics",
        "producer-node-metrics.node--1",
        "producer-node-metrics.node-7",
    }
    both, one = groups["producer-metrics"], groups["producer-node-metrics.node-7"]
    assert (both["outgoing-byte-rate"], one["outgoing-byte-rate"]) == (100, 50)
    assert (both["incoming-byte-total"], one["incoming-byte-total"]) == (100, 50)
    assert (both["request-total"], one["request-total"]) == (4, 2)
    assert both["request-size-avg"] == one["request-size-avg"] == 250
    assert both["request-size-max"] == one["request-size-max"] == 307
    assert (both["response-total"], one["response-rate"]) == (4, 0.2)


# Windows ------------------------------------------------------------------------------------------


def test_rates_cover_the_last_two_windows(metrics: ProducerMetrics) -> None:
    metrics.acknowledged(Batch())  # in the window from 0 to 30
    metrics.mark(30)
    assert producer(metrics, 50)["record-send-rate"] == 10 / 50
    metrics.acknowledged(Batch())  # from 30 to 60
    metrics.mark(60)
    assert producer(metrics, 80)["record-send-rate"] == 10 / 50
    metrics.mark(90)
    named = producer(metrics, 110)
    assert (named["record-send-rate"], named["record-send-total"]) == (0, 20)


def test_averages_and_maxima_cover_the_last_two_windows(metrics: ProducerMetrics) -> None:
    metrics.answered(7, 0.4, 0)
    metrics.mark(30)
    metrics.answered(7, 0.2, 0)
    for now, average, most in ((40, 300, 400), (70, 200, 200)):
        if now > 60:
            metrics.mark(60)
        for group in ("producer-metrics", "producer-node-metrics.node-7"):
            named = metrics.groups(now)[group]
            assert named["request-latency-avg"] == pytest.approx(average)
            assert named["request-latency-max"] == pytest.approx(most)


def test_old_samples_expire_while_the_sender_sleeps(metrics: ProducerMetrics) -> None:
    metrics.acknowledged(Batch())
    assert producer(metrics, 0.001)["record-send-rate"] == 10, "too early for a rate"
    assert producer(metrics, 59)["record-send-rate"] == 10 / 59
    named = producer(metrics, 61)
    zeros = named["record-send-rate"], named["batch-size-avg"], named["batch-size-max"]
    assert zeros == (0, 0, 0)
    assert named["record-send-total"] == 10


def test_after_a_long_sleep_windows_start_again(metrics: ProducerMetrics) -> None:
    metrics.acknowledged(Batch())
    metrics.mark(1000)
    metrics.acknowledged(Batch(size=561))
    named = producer(metrics, 1010)
    assert (named["record-send-rate"], named["batch-size-max"]) == (1, 561)


@pytest.mark.parametrize(("samples", "remembered"), [(1, 30), (2, 60), (5, 150)])
def test_number_and_length_of_windows_are_configurable(samples: int, remembered: float) -> None:
    metrics = ProducerMetrics(samples, WINDOW)
    metrics.mark(0)
    assert metrics.mark_due == WINDOW
    metrics.acknowledged(Batch())
    for end in range(30, 301, 30):
        before = producer(metrics, end - 1)["record-send-rate"] > 0
        assert before == (end <= remembered)
        metrics.mark(end)


# Counters of the application's threads ------------------------------------------------------------


LONG = 20.0


@pytest.mark.parametrize("bulk", [False, True])
def test_waiting_for_memory_and_its_timeout_are_counted(broker: ScriptedBroker, bulk: bool) -> None:
    options = {"buffer_memory": 16384, "max_block_ms": 500, "max_request_size": 16000}
    with producer_before(broker.cluster, linger_ms=0, **options) as producer:
        producer.send("t", b"first").get(LONG)
        broker.next(ApiKey.PRODUCE, silence)
        if not bulk:
            producer.send("t", bytes(10000))
        with pytest.raises(BufferFullError):
            producer.send_many("t", [bytes(10000)] * 2) if bulk else producer.send(
                "t", bytes(10000)
            )
        named = producer.metrics()["producer-metrics"]
        producer.close(0)
    assert named["buffer-exhausted-total"] == 1
    assert named["bufferpool-wait-time-ns-total"] >= 400_000_000
    assert named["flush-time-ns-total"] == 0


# The tables of metrics in the documentation -------------------------------------------------------


def test_a_producer_has_every_documented_metric() -> None:
    broker = ScriptedCluster(topics={"t": [1]}).add(1)
    with producer_before(broker.cluster, linger_ms=0) as producer:
        producer.send("t", b"v")
        producer.flush(LONG)
        groups = producer.metrics()
    by_group = {
        "producer-metrics": PRODUCER_METRICS + PRODUCER_GAUGES,
        "producer-topic-metrics.t": TOPIC_METRICS,
        "producer-node-metrics.node-1": NODE_METRICS,
        "producer-node-metrics.node--1": NODE_METRICS,
    }
    assert {group: list(named) for group, named in groups.items()} == {
        group: [row.name for row in rows] for group, rows in by_group.items()
    }
    check_values_of_one_record(groups)


def check_values_of_one_record(groups: dict[str, dict[str, float]]) -> None:
    every, topic = groups["producer-metrics"], groups["producer-topic-metrics.t"]
    node = groups["producer-node-metrics.node-1"]
    assert every["record-send-total"] == topic["record-send-total"] == every["batch-total"] == 1
    assert every["batch-size-max"] == every["byte-total"] == topic["byte-total"] > 61
    assert every["record-size-avg"] == every["record-size-max"] > 0
    assert every["compression-rate-avg"] == topic["compression-rate"] == 1
    assert every["records-per-request-avg"] == 1
    assert every["outgoing-byte-total"] >= node["outgoing-byte-total"] > every["byte-total"]
    assert node["incoming-byte-total"] > 0
    assert every["request-total"] >= 3  # versions, metadata, records
    assert (every["connection-count"], every["requests-in-flight"]) == (1, 0)
    assert every["connection-creation-total"] - every["connection-close-total"] == 1
    assert every["request-latency-max"] >= every["request-latency-avg"] >= 0
    assert every["metadata-age"] >= 0
    assert every["flush-time-ns-total"] > 0
