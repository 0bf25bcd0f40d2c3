"""A Prometheus collector that reads the metrics of producers when it is scraped."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kprod.observability.readings import Measure, WatchedProducers, prometheus_name

__all__ = ["ProducerCollector"]

_Family = CounterMetricFamily | GaugeMetricFamily


class ProducerCollector(Collector):
    """A Prometheus collector for producers. It does nothing between scrapes. Thread-safe.

    Register it with ``REGISTRY.register(ProducerCollector(producer))``. The producer may be of any
    package of kprod; anything else raises TypeError. Metrics are named ``kprod_producer_...`` and
    have the label ``client_id``. Metrics of topics and brokers also have the label ``topic`` or
    ``node``. A producer that no longer exists, or whose metrics cannot be read, is left out.
    """

    def __init__(self, *producers: object) -> None:
        self._producers = WatchedProducers(*producers)

    def add(self, producer: object) -> None:
        """Add a producer."""
        self._producers.add(producer)

    def describe(self) -> Iterable[_Family]:
        """Return no descriptions, because names depend on the producers' topics and brokers."""
        return ()

    def collect(self) -> Iterable[_Family]:
        """Return the current metrics of all producers."""
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
