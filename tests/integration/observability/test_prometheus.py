"""What Prometheus is told of producers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.observability.prometheus import ProducerCollector


def test_a_scrape_tells_of_every_producer() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        options = {"bootstrap_servers": broker.bootstrap_servers}
        first = KafkaProducer(client_id="one", bootstrap_servers=broker.bootstrap_servers)
        second = KafkaProducer(client_id="two", bootstrap_servers=options["bootstrap_servers"])
        collector = ProducerCollector(first)
        collector.add(second)
        registry = CollectorRegistry()
        registry.register(collector)
        first.send("t", b"v").get(30)
        scraped = generate_latest(registry).decode()
        first.close()
        second.close()
    assert 'kprod_producer_record_send_total{client_id="one"} 1.0' in scraped
    assert 'kprod_producer_record_send_total{client_id="two"} 0.0' in scraped
    assert 'kprod_producer_topic_record_send_total{client_id="one",topic="t"} 1.0' in scraped
    assert 'kprod_producer_buffer_total_bytes{client_id="one"} 3.3554432e+07' in scraped
    assert "# TYPE kprod_producer_record_send_total counter" in scraped
    assert 'node="1"' in scraped


def test_a_producer_that_is_gone_is_not_told_of() -> None:
    assert list(ProducerCollector().collect()) == []
