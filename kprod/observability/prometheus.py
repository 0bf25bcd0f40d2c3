"""A Prometheus collector that reads the metrics of producers when it is scraped."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kprod.observability.readings import Measure, WatchedProducers, prometheus_name

__all__ = ["ProducerCollector"]

_Family = CounterMetricFamily | GaugeMetricFamily


class ProducerCollector(Collector):
    """Reports producers to Prometheus; costs nothing between two scrapes. Thread-safe.

    Register it with ``REGISTRY.register(ProducerCollector(producer))``. The producer may be of any
    API of kprod; raises TypeError for anything else. Names are ``kprod_producer_...`` with the
    label ``client_id``, and ``topic`` or ``node`` for those of topics and brokers. A dropped
    producer is left out, and so is one whose metrics cannot be read, so that the scrape does not
    fail.
    """

    def __init__(self, *producers: object) -> None:
        self._producers = WatchedProducers(*producers)

    def add(self, producer: object) -> None:
        """Add a producer."""
        self._producers.add(producer)

    def describe(self) -> Iterable[_Family]:
        """No descriptions beforehand: names depend on the producers' topics and brokers."""
        return ()

    def collect(self) -> Iterable[_Family]:
        """All readings of all producers, by name."""
        families: dict[str, _Family] = {}
        for client_id, readings in self._producers.readings():
            for measure, of, value in readings:
                name = prometheus_name(measure)
                family = families.get(name)
                if family is None:
                    family = families[name] = _family(name, measure)
                family.add_metric((client_id, *(() if of is None else (of,))), value)
        return families.values()


def _family(name: str, measure: Measure) -> _Family:
    labels = ("client_id", *(() if measure.label is None else (measure.label,)))
    kind = CounterMetricFamily if measure.counts else GaugeMetricFamily
    return kind(name, f"{measure.doc} ({measure.unit})", labels=labels)
