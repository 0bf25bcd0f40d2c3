"""``metrics()`` gives what is in the tables of metrics."""

from __future__ import annotations

from kprod.metrics.table import NODE_METRICS, PRODUCER_GAUGES, PRODUCER_METRICS, TOPIC_METRICS
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import producer_before

LONG = 20.0


def test_a_producer_gives_every_metric_of_the_page() -> None:
    broker = ScriptedCluster(topics={"t": [1]}).add(1)
    with producer_before(broker.cluster, linger_ms=0) as producer:
        producer.send("t", b"v").get(LONG)
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
    told(groups)


def told(groups: dict[str, dict[str, float]]) -> None:
    """What one record must have left behind."""
    every, topic = groups["producer-metrics"], groups["producer-topic-metrics.t"]
    node = groups["producer-node-metrics.node-1"]
    assert (every["record-send-total"], topic["record-send-total"], every["batch-total"]) == (
        1,
        1,
        1,
    )
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
