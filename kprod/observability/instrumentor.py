"""Traces and metrics of every producer of a process, without a line of the application's"""

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
from kprod.config.reading import concealed
from kprod.errors import ConfigError
from kprod.observability.opentelemetry import SEND, ProducerInstruments, TracingInterceptor
from kprod.producer import KafkaProducer
from kprod.version import VERSION

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery

SPANS = "OTEL_PYTHON_KPROD_SPANS"
CALLS = ("send_many", "send_arrow")
SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions that the spans and metrics follow."""


class KprodInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # which has no types
    """``opentelemetry-instrument python app.py`` finds it; or ``KprodInstrumentor().instrument()``.

    Each producer that is made from then on, kprod's own or that of a face, makes a span for every
    record, and a meter reads its metrics. ``instrument`` takes ``tracer_provider`` and
    ``meter_provider``, the global ones by default, and ``spans``: ``"record"``, or ``"call"`` for a
    span for each ``send_many`` and ``send_arrow``, which then stay as fast as they are, and none
    for ``send``. Without it the variable ``OTEL_PYTHON_KPROD_SPANS`` says which. Raises ConfigError
    for anything else. ``uninstrument`` leaves the producers that there are as they are.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """None but kprod itself, which is there."""
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
            own = tuple(options.get("interceptors") or ())
            if spans == "call" or any(isinstance(one, TracingInterceptor) for one in own):
                made(*args, **options)
            else:
                tracing = TracingInterceptor(tracer)
                made(*args, **{**options, "interceptors": (*own, tracing)})
                tracing.attributes["messaging.client.id"] = producer.config.client_id
                # A pickle needs OpenTelemetry no more than before, and tells no secret either.
                producer._options = concealed(options)
            instruments.add(producer)

        wrapper: Any = make  # wrapt's types know no methods
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
    """A bulk call within a span. Records of ``send_many`` without headers carry its context."""
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
