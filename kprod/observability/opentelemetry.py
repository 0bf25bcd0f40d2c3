"""A span for each record, as OpenTelemetry's semantic conventions for messaging have it

The context of the span travels in the record's headers (W3C Trace Context).
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import propagate, trace

from kprod.errors import BrokerError, KprodError
from kprod.observability.instruments import observe_producer
from kprod.types import ProducerRecord, RecordMetadata

__all__ = ["TracingInterceptor", "observe_producer"]

SEND = {
    "messaging.system": "kafka",
    "messaging.operation.type": "send",
    "messaging.operation.name": "send",
}


class TracingInterceptor:
    """A span for every record: ``KafkaProducer(interceptors=[TracingInterceptor()])``.

    It begins with ``send`` as a child of the current span and ends when the record was queued; one
    whose delivery fails later has a second span, a child of the first, with the error. A record
    whose headers carry a context already, for another instrumentation made a span, is left as it
    is. ``attributes`` are those of every span. Thread-safe.
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
        """A span that says what became of the record."""
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
