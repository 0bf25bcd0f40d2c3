"""A reporter plug-in of Apache Kafka gets a producer's metrics (KIP-714)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import ApiKey
from tests.support.apache_kafka.broker import ApacheKafka, Guards
from tests.support.apache_kafka.jars import NEWEST, jars
from tests.support.metrics_data import PushedMetric, read_metrics
from tests.support.topic_admin import TopicAdmin
from tests.support.waiting import await_true
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.full

SINK = Path(__file__).parents[1] / "support" / "apache_kafka" / "TelemetrySink.java"
COMPILER = ["java", "-Xmx256m", "--module", "jdk.compiler/com.sun.tools.javac.Main"]
CLIENT_METRICS = 16
"""The resource type of a subscription."""
DOMAIN = "org.apache.kafka.producer."
SECONDS = 60.0


def compiled(into: Path) -> Path:
    classpath = ":".join(map(str, jars(NEWEST).glob("*.jar")))
    command = [*COMPILER, "-cp", classpath, "-d", str(into), str(SINK)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return into


def request(address: str, api: ApiKey, version: int, **values: Any) -> Any:
    with WireClient(address) as client:
        client.send(api, version, values)
        return client.receive(api, version)[1]


def subscribe(address: str, **settings: str) -> None:
    """Subscribe to metrics; returns once clients are asked for them."""
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": configs}
    answer = request(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert [int(response.error_code) for response in answer.responses] == [0]
    subscriptions = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    await_true(lambda: request(address, subscriptions, 0).requested_metrics, SECONDS)


def pushes(folder: Path, count: int) -> list[tuple[str, str, list[PushedMetric]]]:
    """Instance id, whether it is the last, and metrics of each push; waits for ``count``."""
    await_true(lambda: len(list(folder.glob("*.metrics"))) >= count, SECONDS)
    found: list[tuple[str, str, list[PushedMetric]]] = []
    for path in sorted(folder.glob("*.metrics")):
        _, instance_id, last = path.stem.split("-")
        found.append((instance_id, last, read_metrics(path.read_bytes())))
    return found


def test_apache_kafka_receives_the_subscribed_metrics(tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    sink.mkdir()
    guards = Guards(
        {},
        {"metric.reporters": "TelemetrySink"},
        [],
        java=(f"-Dtelemetry.folder={sink}",),
        classes=compiled(tmp_path / "classes"),
    )
    with ApacheKafka(tmp_path / "kafka", NEWEST, guards=guards) as kafka:
        TopicAdmin(kafka.bootstrap_servers).create("t", 1)
        subscribe(kafka.bootstrap_servers, metrics=DOMAIN, interval_ms="200")
        with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            own_id = producer.client_instance_id(timeout=SECONDS)
            for number in range(10):
                producer.send("t", b"%d" % number).get(timeout=SECONDS)
            pushes(sink, 3)
        received = pushes(sink, 4)
    assert {instance_id for instance_id, _, _ in received} == {own_id.hex}
    assert [last for _, last, _ in received] == ["false"] * (len(received) - 1) + ["true"]
    metrics = [metric for _, _, push in received for metric in push]
    sent = [metric for metric in metrics if metric.name == f"{DOMAIN}record.send.total"]
    assert {metric.kind for metric in sent} == {"delta"}
    assert sum(metric.value for metric in sent) == 10
    (topic, *_) = [
        metric for metric in metrics if metric.name == f"{DOMAIN}topic.record.send.total"
    ]
    assert topic.attributes == {"topic": "t"}
