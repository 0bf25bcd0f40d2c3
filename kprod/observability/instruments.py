"""The metrics of producers as instruments of OpenTelemetry, read whenever a reader exports"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from kprod.observability.readings import TOLD, Reading, Told, readings
from kprod.producer import KafkaProducer

FRESH = 0.1
"""Seconds for which the numbers of a producer serve the instruments of one export."""
ATTRIBUTES = {"topic": "messaging.destination.name", "node": "server.id"}
SENT = {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}
OUTCOMES = {"record-send-total": {}, "record-error-total": {"error.type": "_OTHER"}}

Observe = Callable[[CallbackOptions], Iterable[Observation]]


def observe_producer(producer: KafkaProducer, meter: metrics.Meter | None = None) -> None:
    """Let ``meter`` (the global one if None) read the producer's metrics whenever it exports.

    See ``ProducerInstruments``; those of one meter are made once, however many producers it reads.
    """
    meter = meter or metrics.get_meter("kprod")
    instruments = _OF_METER.get(meter)
    if instruments is None:
        instruments = _OF_METER[meter] = ProducerInstruments(meter)
    instruments.add(producer)


class ProducerInstruments:
    """Instruments of one meter for any number of producers; nothing is told of a dropped one.

    They are ``kprod.<name>`` with the attribute ``messaging.client.id``, and ``kprod.topic.<name>``
    and ``kprod.node.<name>`` with ``messaging.destination.name`` and ``server.id``; besides them
    ``messaging.client.sent.messages`` of the semantic conventions. Any thread.
    """

    def __init__(self, meter: metrics.Meter) -> None:
        self._producers: weakref.WeakKeyDictionary[KafkaProducer, _Numbers] = (
            weakref.WeakKeyDictionary()
        )
        for told in (told for group in TOLD.values() for told in group.values()):
            counter, gauge = meter.create_observable_counter, meter.create_observable_gauge
            make = counter if told.counts else gauge
            make(_name(told), [self._observer(told)], unit=told.unit, description=told.doc)
        meter.create_observable_counter(
            "messaging.client.sent.messages",
            [self._sent],
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )

    def add(self, producer: KafkaProducer) -> None:
        """Tell of this producer, too."""
        self._producers[producer] = _Numbers()

    def _observer(self, told: Told) -> Observe:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for client_id, (of, value) in self._of(told):
                attributes = {"messaging.client.id": client_id}
                if told.label is not None and of is not None:
                    attributes[ATTRIBUTES[told.label]] = of
                yield Observation(value, attributes)

        return observe

    def _sent(self, _: CallbackOptions) -> Iterator[Observation]:
        for name, outcome in OUTCOMES.items():
            for client_id, (topic, value) in self._of(TOLD["producer-topic"][name]):
                named = {"messaging.client.id": client_id, ATTRIBUTES["topic"]: topic or ""}
                yield Observation(value, {**SENT, **named, **outcome})

    def _of(self, told: Told) -> Iterator[tuple[str, tuple[str | None, float]]]:
        for producer, numbers in list(self._producers.items()):
            for number in numbers.of(producer).get(told, ()):
                yield producer.config.client_id, number


class _Numbers:
    """What was read of a producer last: all instruments of an export look at it in a row."""

    def __init__(self) -> None:
        self._read: dict[Told, list[tuple[str | None, float]]] = {}
        self._read_at = float("-inf")

    def of(self, producer: KafkaProducer) -> dict[Told, list[tuple[str | None, float]]]:
        now = time.monotonic()
        if now - self._read_at > FRESH:
            self._read, self._read_at = _by_kind(readings(producer)), now
        return self._read


def _by_kind(found: Iterable[Reading]) -> dict[Told, list[tuple[str | None, float]]]:
    numbers: dict[Told, list[tuple[str | None, float]]] = {}
    for told, of, value in found:
        numbers.setdefault(told, []).append((of, value))
    return numbers


def _name(told: Told) -> str:
    kind = told.group.removeprefix("producer").removeprefix("-")
    return ".".join(part for part in ("kprod", kind, told.name) if part)


_OF_METER: weakref.WeakKeyDictionary[metrics.Meter, ProducerInstruments] = (
    weakref.WeakKeyDictionary()
)
