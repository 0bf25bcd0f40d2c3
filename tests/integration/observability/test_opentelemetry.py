"""What OpenTelemetry is told of producers and their records."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.errors import PartitionError
from kprod.observability.opentelemetry import TracingInterceptor
from tests.support.judge import read_back


def test_records_carry_the_context_of_their_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = TracingInterceptor(provider.get_tracer("test"))
    with (
        EmbeddedBroker(topics={"t": 1}) as broker,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, interceptors=[tracing]
        ) as producer,
    ):
        producer.send("t", b"v", headers=[("own", b"1")], partition=0).get(30)
        with pytest.raises(PartitionError):
            producer.send("t", b"v", partition=9)
        (record,) = read_back(broker.bootstrap_servers, "t", 1)
    span, second, failed = exporter.get_finished_spans()
    assert span.context is not None
    headers = dict(record.headers)
    assert headers["own"] == b"1"
    assert f"{span.context.trace_id:032x}".encode() in (headers["traceparent"] or b"")
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "t"
    assert span.attributes["messaging.destination.partition.id"] == "0"
    assert second.name == "send t"
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "PartitionError"
    provider.shutdown()
