"""The dashboard asks for what Prometheus is told, and for all of it."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, generate_latest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.observability.prometheus import ProducerCollector
from tools.pages.dashboard import dashboard

METRIC = re.compile(r"kprod_\w+")


def test_every_panel_asks_for_what_a_scrape_has() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            registry = CollectorRegistry()
            registry.register(ProducerCollector(producer))
            producer.send("t", b"v").get(30)
            scraped = set(METRIC.findall(generate_latest(registry).decode()))
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x"
        ) as producer:
            registry = CollectorRegistry()
            registry.register(ProducerCollector(producer))
            scraped |= set(METRIC.findall(generate_latest(registry).decode()))
    asked = {
        name
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
        for name in METRIC.findall(target["expr"])
    }
    assert asked == scraped
