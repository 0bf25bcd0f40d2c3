"""Apache Kafka subscribes to a producer's metrics, and a plugin of it gets them (KIP-714)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import ApiKey
from tests.support.apache_kafka.broker import ApacheKafka, Guards
from tests.support.apache_kafka.jars import NEWEST, jars
from tests.support.metrics_data import ToldMetric, read_metrics
from tests.support.topic_admin import TopicAdmin
from tests.support.waiting import await_true
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.full

SINK = Path(__file__).parents[1] / "support" / "apache_kafka" / "TelemetrySink.java"
COMPILER = ["java", "-Xmx256m", "--module", "jdk.compiler/com.sun.tools.javac.Main"]
CLIENT_METRICS = 16
"""The type of resource that a subscription is."""
DOMAIN = "org.apache.kafka.producer."
SECONDS = 60.0


def compiled(into: Path) -> Path:
    classpath = ":".join(map(str, jars(NEWEST).glob("*.jar")))
    command = [*COMPILER, "-cp", classpath, "-d", str(into), str(SINK)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return into


def asked(address: str, api: ApiKey, version: int, **values: Any) -> Any:
    with WireClient(address) as client:
        client.send(api, version, values)
        return client.receive(api, version)[1]


def subscribe(address: str, **settings: str) -> None:
    """Ask clients for metrics; returns once the broker does."""
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "all", "configs": configs}
    answer = asked(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert [int(one.error_code) for one in answer.responses] == [0]
    subscriptions = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
    await_true(lambda: asked(address, subscriptions, 0).requested_metrics, SECONDS)


def pushes(folder: Path, count: int) -> list[tuple[str, str, list[ToldMetric]]]:
    """Of each push, once there are so many: whose it is, whether the last, and what it tells."""
    await_true(lambda: len(list(folder.glob("*.metrics"))) >= count, SECONDS)
    told: list[tuple[str, str, list[ToldMetric]]] = []
    for path in sorted(folder.glob("*.metrics")):
        _, whose, last = path.stem.split("-")
        told.append((whose, last, read_metrics(path.read_bytes())))
    return told


def test_apache_kafka_takes_the_metrics_that_it_subscribed_to(tmp_path: Path) -> None:
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
        told = pushes(sink, 4)
    assert {whose for whose, _, _ in told} == {own_id.hex}
    assert [last for _, last, _ in told] == ["false"] * (len(told) - 1) + ["true"]
    metrics = [one for _, _, each in told for one in each]
    sent = [one for one in metrics if one.name == f"{DOMAIN}record.send.total"]
    assert {one.kind for one in sent} == {"delta"}
    assert sum(one.value for one in sent) == 10
    (topic, *_) = [one for one in metrics if one.name == f"{DOMAIN}topic.record.send.total"]
    assert topic.attributes == {"topic": "t"}
