"""Producers for Prometheus: a collector that reads them when it is scraped"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kprod.observability.readings import Told, prometheus_name, readings
from kprod.producer import KafkaProducer

_Family = CounterMetricFamily | GaugeMetricFamily


class ProducerCollector(Collector):
    """Reports producers to Prometheus; costs nothing between two scrapes. Thread-safe.

    ``REGISTRY.register(ProducerCollector(producer))`` is all. Names are ``kprod_producer_...`` with
    the label ``client_id``, those of topics and brokers with ``topic`` and ``node``. A producer
    that was dropped is left out.
    """

    def __init__(self, *producers: KafkaProducer) -> None:
        self._producers: weakref.WeakSet[KafkaProducer] = weakref.WeakSet(producers)

    def add(self, producer: KafkaProducer) -> None:
        """Report this producer, too."""
        self._producers.add(producer)

    def describe(self) -> Iterable[_Family]:
        """Nothing beforehand: names depend on what the producers do."""
        return ()

    def collect(self) -> Iterable[_Family]:
        """Every reading of every producer, by name."""
        families: dict[str, _Family] = {}
        for producer in list(self._producers):
            for told, of, value in readings(producer):
                name = prometheus_name(told)
                family = families.get(name)
                if family is None:
                    family = families[name] = _family(name, told)
                labels = (producer.config.client_id, *(() if of is None else (of,)))
                family.add_metric(labels, value)
        return families.values()


def _family(name: str, told: Told) -> _Family:
    labels = ("client_id", *(() if told.label is None else (told.label,)))
    kind = CounterMetricFamily if told.counts else GaugeMetricFamily
    return kind(name, f"{told.doc} ({told.unit})", labels=labels)
