"""Spans and metrics, as OpenTelemetry's semantic conventions for messaging have them"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation

from kprod.errors import BrokerError, KprodError
from kprod.observability.readings import TOLD, Reading, Told, readings
from kprod.producer import KafkaProducer
from kprod.types import ProducerRecord, RecordMetadata

__all__ = ["TracingInterceptor", "observe_producer"]

SEND = {
    "messaging.system": "kafka",
    "messaging.operation.type": "send",
    "messaging.operation.name": "send",
}


class TracingInterceptor:
    """A span for every record: ``KafkaProducer(interceptors=[TracingInterceptor()])``.

    It begins with ``send`` as a child of the current span and ends when the record was queued; a
    delivery that fails later makes a second span, a child of the first, with the error. A record
    with a context in its headers already, from another instrumentation, is left as it is.
    ``attributes`` are those of every span. Thread-safe.
    """

    def __init__(
        self, tracer: trace.Tracer | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._tracer = tracer or trace.get_tracer("kprod")
        self._fields = frozenset(propagate.get_global_textmap().fields)
        self.attributes = {**SEND, **(attributes or {})}

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the context of its span in its headers."""
        if any(name in self._fields for name, _ in record.headers):
            return record
        carrier: dict[str, str] = {}
        with self._tracer.start_as_current_span(
            f"send {record.topic}", kind=trace.SpanKind.PRODUCER, attributes=self._of(record)
        ):
            propagate.inject(carrier)
        added = tuple((name, value.encode()) for name, value in carrier.items())
        return ProducerRecord(
            record.topic,
            record.value,
            record.key,
            (*record.headers, *added),
            record.partition,
            record.timestamp_ms,
        )

    def _of(self, record: ProducerRecord) -> dict[str, str | bool]:
        attributes: dict[str, str | bool] = {
            **self.attributes,
            "messaging.destination.name": record.topic,
        }
        if record.partition is not None:
            attributes["messaging.destination.partition.id"] = str(record.partition)
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        return attributes

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        """Nothing: a span per acknowledgement would cost more than the record."""

    def on_send_error(self, record: ProducerRecord, error: KprodError) -> None:
        """A span with the error that ended the record."""
        carried = {name: (data or b"").decode(errors="replace") for name, data in record.headers}
        with self._tracer.start_as_current_span(
            f"send {record.topic}",
            context=propagate.extract(carried),
            kind=trace.SpanKind.PRODUCER,
            attributes=self._of(record),
        ) as span:
            kind = error.name if isinstance(error, BrokerError) else type(error).__name__
            span.set_attribute("error.type", kind)
            span.set_status(trace.StatusCode.ERROR, str(error))


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
    """Instruments of one meter for any number of producers; a dropped one is left out.

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
        """Observe this producer, too."""
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
