"""Spans and metrics, following OpenTelemetry's semantic conventions for messaging."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation

from kprod.clock import monotonic
from kprod.errors import BrokerError, KprodError
from kprod.observability.readings import MEASURES, Measure, WatchedProducers
from kprod.types import ProducerRecord, RecordMetadata

__all__ = ["TracingInterceptor", "observe_producer"]

SEND = {
    "messaging.system": "kafka",
    "messaging.operation.type": "send",
    "messaging.operation.name": "send",
}


class TracingInterceptor:
    """Creates a span for every record. Thread-safe.

    Use it with ``KafkaProducer(interceptors=[TracingInterceptor()])``. The span begins with
    ``send``, as a child of the current span, and ends when the record is queued. If delivery fails
    later, a second span with the error is created, as a child of the first. A record that already
    has a trace context in its headers is not changed. ``attributes`` are set on every span.
    """

    def __init__(
        self, tracer: trace.Tracer | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._tracer = tracer or trace.get_tracer("kprod")
        self._fields = frozenset(propagate.get_global_textmap().fields)
        self.attributes = {**SEND, **(attributes or {})}

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record, with the context of a new span in its headers."""
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
        """Do nothing, because a span per acknowledgement would cost more than the record."""

    def on_send_error(self, record: ProducerRecord, error: KprodError) -> None:
        """Create a span with the record's error."""
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
"""Seconds for which the values are cached for the instruments of one export."""
ATTRIBUTES = {"topic": "messaging.destination.name", "node": "server.id"}
SENT = {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}
OUTCOMES = {"record-send-total": {}, "record-error-total": {"error.type": "_OTHER"}}

Observe = Callable[[CallbackOptions], Iterable[Observation]]


def observe_producer(producer: object, meter: metrics.Meter | None = None) -> None:
    """Export the metrics of a producer through ``meter`` (None: the global one).

    The producer may be of any package of kprod; anything else raises TypeError. All producers of a
    meter share its ``ProducerInstruments``.
    """
    meter = meter or metrics.get_meter("kprod")
    instruments = _OF_METER.get(meter)
    if instruments is None:
        instruments = _OF_METER[meter] = ProducerInstruments(meter)
    instruments.add(producer)


class ProducerInstruments:
    """The instruments of one meter for any number of producers. Thread-safe.

    All instruments have the attribute ``messaging.client.id``. Those named ``kprod.topic.<name>``
    also have ``messaging.destination.name``, and those named ``kprod.node.<name>`` also have
    ``server.id``. ``messaging.client.sent.messages`` follows the semantic conventions. A producer
    that no longer exists is left out.
    """

    def __init__(self, meter: metrics.Meter) -> None:
        self._producers = WatchedProducers()
        self._read: _Numbers = {}
        self._read_at = float("-inf")
        for measure in (measure for group in MEASURES.values() for measure in group.values()):
            counter, gauge = meter.create_observable_counter, meter.create_observable_gauge
            make = counter if measure.counts else gauge
            make(
                _name(measure),
                [self._observer(measure)],
                unit=measure.unit,
                description=measure.doc,
            )
        meter.create_observable_counter(
            "messaging.client.sent.messages",
            [self._sent],
            unit="{message}",
            description="Number of messages producer attempted to send to the broker.",
        )

    def add(self, producer: object) -> None:
        """Add a producer."""
        self._producers.add(producer)
        self._read_at = float("-inf")

    def _observer(self, measure: Measure) -> Observe:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for client_id, of, value in self._of(measure):
                attributes = {"messaging.client.id": client_id}
                if measure.label is not None and of is not None:
                    attributes[ATTRIBUTES[measure.label]] = of
                yield Observation(value, attributes)

        return observe

    def _sent(self, _: CallbackOptions) -> Iterator[Observation]:
        for name, outcome in OUTCOMES.items():
            for client_id, topic, value in self._of(MEASURES["producer-topic"][name]):
                named = {"messaging.client.id": client_id, ATTRIBUTES["topic"]: topic or ""}
                yield Observation(value, {**SENT, **named, **outcome})

    def _of(self, measure: Measure) -> list[tuple[str, str | None, float]]:
        """Values by client id and by topic or node. All instruments of an export share a cache."""
        now = monotonic()
        if now - self._read_at > FRESH:
            numbers: _Numbers = {}
            for client_id, readings in self._producers.readings():
                for kind, of, value in readings:
                    numbers.setdefault(kind, []).append((client_id, of, value))
            self._read, self._read_at = numbers, now
        return self._read.get(measure, [])


_Numbers = dict[Measure, list[tuple[str, str | None, float]]]


def _name(measure: Measure) -> str:
    kind = measure.group.removeprefix("producer").removeprefix("-")
    return ".".join(part for part in ("kprod", kind, measure.name) if part)


_OF_METER: weakref.WeakKeyDictionary[metrics.Meter, ProducerInstruments] = (
    weakref.WeakKeyDictionary()
)
