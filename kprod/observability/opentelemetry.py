"""Producers for OpenTelemetry: metrics that are read when they are exported, and a span per record

Names follow OpenTelemetry's semantic conventions for messaging; the context of the span travels in
the record's headers (W3C Trace Context).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation

from kprod.errors import BrokerError, KprodError
from kprod.observability.readings import readings
from kprod.producer import KafkaProducer
from kprod.types import ProducerRecord, RecordMetadata


def observe_producer(producer: KafkaProducer, meter: metrics.Meter | None = None) -> None:
    """Let ``meter`` (the global one if None) read the producer's metrics whenever it exports.

    Instruments are ``kprod.<name>`` with the attribute ``messaging.client.id``, those of topics and
    brokers with ``messaging.destination.name`` and ``server.id``. Nothing is told of a producer
    that was dropped.
    """
    meter = meter or metrics.get_meter("kprod")
    known = weakref.ref(producer)
    told: set[str] = set()
    for group, reading in readings(producer):
        if reading.name in told or reading.labels:
            continue
        told.add(reading.name)
        make = meter.create_observable_counter if reading.counts else meter.create_observable_gauge
        observe = _observer(known, group, reading.name)
        make(f"kprod.{reading.name}", [observe], unit=reading.unit, description=reading.doc)


def _observer(known: weakref.ref[KafkaProducer], group: str, name: str) -> Any:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        producer = known()
        if producer is None:
            return
        attributes = {"messaging.client.id": producer.config.client_id}
        for kind, reading in readings(producer):
            if kind == group and reading.name == name:
                yield Observation(reading.value, attributes)

    return observe


class TracingInterceptor:
    """A span for every record: ``KafkaProducer(interceptors=[TracingInterceptor()])``.

    It begins with ``send`` as a child of the current span and ends when the record was queued, or
    could not be; the record's outcome is told by the producer's metrics. Thread-safe.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("kprod")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the context of its span in its headers."""
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": record.topic,
        }
        with self._tracer.start_as_current_span(
            f"send {record.topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            if record.partition is not None:
                span.set_attribute("messaging.destination.partition.id", str(record.partition))
            carrier: dict[str, str] = {}
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

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        """Nothing: a span per acknowledgement would cost more than the record."""

    def on_send_error(self, record: ProducerRecord, error: KprodError) -> None:
        """A span that says what became of the record."""
        with self._tracer.start_as_current_span(
            f"send {record.topic}", kind=trace.SpanKind.PRODUCER
        ) as span:
            span.set_attribute("messaging.destination.name", record.topic)
            kind = error.name if isinstance(error, BrokerError) else type(error).__name__
            span.set_attribute("error.type", kind)
            span.set_status(trace.StatusCode.ERROR, str(error))
