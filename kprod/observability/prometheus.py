"""Producers for Prometheus: a collector that reads them when it is scraped"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kprod.observability.readings import Reading, readings
from kprod.producer import KafkaProducer

_Family = CounterMetricFamily | GaugeMetricFamily


class ProducerCollector(Collector):
    """Tells Prometheus of producers; costs nothing between two scrapes. Thread-safe.

    ``REGISTRY.register(ProducerCollector(producer))`` is all. Names are ``kprod_producer_...`` with
    the label ``client_id``, those of topics and brokers with ``topic`` and ``node``. A producer
    that was dropped is no longer told of.
    """

    def __init__(self, *producers: KafkaProducer) -> None:
        self._producers: weakref.WeakSet[KafkaProducer] = weakref.WeakSet(producers)

    def add(self, producer: KafkaProducer) -> None:
        """Tell of this producer, too."""
        self._producers.add(producer)

    def describe(self) -> Iterable[_Family]:
        """Nothing beforehand: names depend on what the producers do."""
        return ()

    def collect(self) -> Iterable[_Family]:
        """Every reading of every producer, by name."""
        families: dict[str, _Family] = {}
        for producer in list(self._producers):
            for group, reading in readings(producer):
                name = f"kprod_{group.removesuffix('-metrics')}_{reading.name}".replace("-", "_")
                family = families.get(name)
                if family is None:
                    family = families[name] = _family(name, reading)
                values = (producer.config.client_id, *(value for _, value in reading.labels))
                family.add_metric(values, reading.value)
        return families.values()


def _family(name: str, reading: Reading) -> _Family:
    labels = ("client_id", *(label for label, _ in reading.labels))
    kind = CounterMetricFamily if reading.counts else GaugeMetricFamily
    return kind(name, f"{reading.doc} ({reading.unit})", labels=labels)
