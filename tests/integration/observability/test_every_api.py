"""Metrics of every API; no producer can make a scrape fail."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.config import ProducerConfig
from kprod.observability.opentelemetry import observe_producer
from kprod.observability.prometheus import ProducerCollector
from kprod.observability.statsd import StatsdReporter
from kprod.testing import RecordingProducer
from tests.integration.observability.test_statsd import NEVER, RecordingClient
from tests.support import apis
from tests.support.forks import by_python, in_child
from tools.pages.dashboard import dashboard

SENT = 'kprod_producer_record_send_total{client_id="one"} 1.0'


APIS = [*apis.SENDING, apis.recording]


def scraped(*producers: object) -> str:
    registry = CollectorRegistry()
    registry.register(ProducerCollector(*producers))
    return generate_latest(registry).decode()


def exported(reader: InMemoryMetricReader) -> dict[tuple[str, Any], Any]:
    """The values of counters and gauges by their names and client ids."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, (point.attributes or {}).get("messaging.client.id")): getattr(
            point, "value", None
        )
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }


@pytest.mark.parametrize("api", APIS)
async def test_metrics_of_every_api_reach_prometheus_statsd_and_opentelemetry(
    broker: EmbeddedBroker, api: Callable[[str], Any]
) -> None:
    """A closed producer does no harm."""
    reader, client = InMemoryMetricReader(), RecordingClient()
    provider = MeterProvider([reader])
    async with api(broker.bootstrap_servers) as producer:
        assert SENT in scraped(producer).splitlines()
        with StatsdReporter(client, producer, interval=NEVER) as reporter:
            reporter.send()
        assert client.counters[0]["kprod.producer.one.record-send-total"] == 1
        observe_producer(producer, provider.get_meter("test"))
        assert exported(reader)["kprod.record-send-total", "one"] == 1
        collector = ProducerCollector(producer)
    provider.shutdown()
    registry = CollectorRegistry()
    registry.register(collector)
    collector.add(producer)
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith(SENT[:32])] in ([], [SENT])


def test_a_second_producer_of_a_client_id_has_its_own_label() -> None:
    options: dict[str, Any] = {"client_id": "one"}
    first, second = RecordingProducer(**options), RecordingProducer(**options)
    second.send("t", b"v")
    text = scraped(first, second, second)
    assert 'kprod_producer_record_send_total{client_id="one"} 0.0' in text
    assert 'kprod_producer_record_send_total{client_id="one-2"} 1.0' in text
    assert "one-3" not in text


def test_the_label_of_a_dropped_producer_is_reused() -> None:
    first = RecordingProducer(client_id="one")
    collector = ProducerCollector(first)
    del first
    gc.collect()
    second = RecordingProducer(client_id="one")
    collector.add(second)
    (family,) = [each for each in collector.collect() if each.name.endswith("_send")][:1]
    assert [sample.labels["client_id"] for sample in family.samples] == ["one"]


@pytest.mark.parametrize("invalid", [None, "producer", object(), KafkaProducer])
def test_the_collector_refuses_objects_that_are_not_producers(invalid: object) -> None:
    with pytest.raises(TypeError, match="expected a producer of kprod, got"):
        ProducerCollector(invalid)


class Broken:
    config = ProducerConfig.from_options({"client_id": "broken"})

    def metrics(self) -> dict[str, dict[str, float]]:
        raise OSError("no numbers")


def test_a_producer_whose_metrics_raise_is_left_out_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, producer = Broken(), RecordingProducer(client_id="one")
    producer.send("t", b"v")
    registry = CollectorRegistry()
    registry.register(ProducerCollector(broken, producer))
    assert SENT in generate_latest(registry).decode()
    assert SENT in generate_latest(registry).decode()
    (record,) = caplog.records
    assert record.getMessage() == "metrics of 'broken' cannot be read; they are left out"


async def test_a_forked_child_can_be_scraped(broker: EmbeddedBroker) -> None:
    async with apis.native(broker.bootstrap_servers) as producer:
        assert in_child(by_python, lambda: SENT[:32] in scraped(producer)) == "True"


METRIC = re.compile(r"kprod_\w+")


def test_the_dashboard_uses_exactly_the_scraped_metrics(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with (
        KafkaProducer(bootstrap_servers=servers) as plain,
        KafkaProducer(bootstrap_servers=servers, transactional_id="x") as transactional,
    ):
        plain.send("t", b"v").get(30)
        found = set(METRIC.findall(scraped(plain, transactional)))
    used = {
        name
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
        for name in METRIC.findall(target["expr"])
    }
    assert used == found
