"""Traces and metrics of every producer of a process, without a line of the application's"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.instrumentation.utils import unwrap
from wrapt import wrap_function_wrapper

from kprod.config.option_types import ProducerOptions
from kprod.observability.opentelemetry import ProducerInstruments, TracingInterceptor
from kprod.producer import KafkaProducer
from kprod.version import VERSION

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions that the spans and metrics follow."""


class KprodInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # which has no types
    """``opentelemetry-instrument python app.py`` finds it; or ``KprodInstrumentor().instrument()``.

    Each producer that is made from then on, kprod's own or that of a face, makes a span for every
    record, and a meter reads its metrics. ``instrument`` takes ``tracer_provider`` and
    ``meter_provider``, the global ones by default. ``uninstrument`` leaves the producers that there
    are as they are.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """None but kprod itself, which is there."""
        return ()

    def _instrument(self, **given: Any) -> None:
        tracer = trace.get_tracer("kprod", VERSION, given.get("tracer_provider"), SCHEMA)
        meter = metrics.get_meter("kprod", VERSION, given.get("meter_provider"), SCHEMA)
        instruments = ProducerInstruments(meter)

        def make(
            made: Callable[..., None], producer: KafkaProducer, args: Any, options: ProducerOptions
        ) -> None:
            own = tuple(options.get("interceptors") or ())
            if any(isinstance(one, TracingInterceptor) for one in own):
                made(*args, **options)
            else:
                tracing = TracingInterceptor(tracer)
                made(*args, **{**options, "interceptors": (*own, tracing)})
                tracing.attributes["messaging.client.id"] = producer.config.client_id
                producer._options = options  # a pickle needs OpenTelemetry no more than before
            instruments.add(producer)

        wrapper: Any = make  # wrapt's types know no methods
        wrap_function_wrapper(KafkaProducer, "__init__", wrapper)

    def _uninstrument(self, **_: Any) -> None:
        unwrap(KafkaProducer, "__init__")
