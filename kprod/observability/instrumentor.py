"""Traces and metrics of all producers of a process, without changes to the application."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.instrumentation.utils import unwrap
from wrapt import wrap_function_wrapper

from kprod.config.option_types import ProducerOptions
from kprod.config.reading import concealed, option_name
from kprod.errors import ConfigError
from kprod.observability.opentelemetry import SEND, ProducerInstruments, TracingInterceptor
from kprod.producer import KafkaProducer
from kprod.version import VERSION

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery

__all__ = ["KprodInstrumentor"]

SPANS = "OTEL_PYTHON_KPROD_SPANS"
CALLS = ("send_many", "send_arrow")
SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions that the spans and metrics follow."""


class KprodInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # which has no types
    """Traces and measures all producers of a process, without changes to the program.

    Start the program with ``opentelemetry-instrument python app.py``, or call
    ``KprodInstrumentor().instrument()`` in it. Each producer that is created afterwards creates
    spans, and its metrics are exported. This includes the producers of the drop-in packages.

    ``instrument`` has three options. ``tracer_provider`` and ``meter_provider`` are by default the
    global ones. ``spans`` is ``"record"`` or ``"call"``. ``"record"`` creates a span for each
    record. ``"call"`` creates one span for each ``send_many`` or ``send_arrow``, and none for
    ``send``. Only ``"call"`` keeps the full speed of the bulk calls. The default of ``spans`` is
    the environment variable ``OTEL_PYTHON_KPROD_SPANS``, or ``"record"`` if it is not set. Any
    other value raises ConfigError. ``uninstrument`` does not change existing producers.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no dependencies, because only kprod itself is needed."""
        return ()

    def _instrument(self, **given: Any) -> None:
        tracer = trace.get_tracer("kprod", VERSION, given.get("tracer_provider"), SCHEMA)
        meter = metrics.get_meter("kprod", VERSION, given.get("meter_provider"), SCHEMA)
        instruments = ProducerInstruments(meter)
        spans = given.get("spans") or os.environ.get(SPANS, "record")
        if spans not in ("record", "call"):
            raise ConfigError(f"{SPANS}: expected record or call, got {spans!r}")

        def make(
            made: Callable[..., None], producer: KafkaProducer, args: Any, options: ProducerOptions
        ) -> None:
            options = concealed(options)  # a traceback may show this frame, too
            named = (each for each in options if option_name(each) == "interceptors")
            name = next(named, "interceptors")
            own: Any = options.get(name) or ()
            if (
                spans == "call"
                or not isinstance(own, list | tuple)  # the producer refuses it
                or any(isinstance(one, TracingInterceptor) for one in own)
            ):
                made(*args, **options)
            else:
                tracing = TracingInterceptor(tracer)
                made(*args, **{**options, name: (*own, tracing)})
                tracing.attributes["messaging.client.id"] = producer.config.client_id
                producer._options = options  # a pickle needs OpenTelemetry no more than before
            instruments.add(producer)

        wrapper: Any = make  # wrapt's types do not cover methods
        wrap_function_wrapper(KafkaProducer, "__init__", wrapper)
        if spans == "call":
            traced: Any = partial(_in_a_span, tracer)
            for name in CALLS:
                wrap_function_wrapper(KafkaProducer, name, traced)

    def _uninstrument(self, **_: Any) -> None:
        for name in ("__init__", *CALLS):
            unwrap(KafkaProducer, name)


def _in_a_span(
    tracer: trace.Tracer,
    call: Callable[..., BulkDelivery],
    producer: KafkaProducer,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> BulkDelivery:
    """Run a bulk call in a span. The records of a ``send_many`` without headers get its context."""
    topic = args[0] if args else named.get("topic")
    attributes = {
        **SEND,
        "messaging.client.id": producer.config.client_id,
        "messaging.destination.name": str(topic),
    }
    kind = trace.SpanKind.PRODUCER
    with tracer.start_as_current_span(f"send {topic}", kind=kind, attributes=attributes) as span:
        if call.__name__ == "send_many" and named.get("headers") is None:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            carried = [(name, value.encode()) for name, value in carrier.items()]
            named = {**named, "headers": carried or None}
        delivery = call(*args, **named)
        span.set_attribute("messaging.batch.message_count", len(delivery))
        return delivery
