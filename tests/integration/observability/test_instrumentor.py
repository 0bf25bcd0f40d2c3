"""Automatic instrumentation of every API, also together with opentelemetry-contrib's."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import kprod.aio
import kprod.confluent
from kprod.broker import EmbeddedBroker
from kprod.observability.instrumentor import KprodInstrumentor
from kprod.observability.opentelemetry import TracingInterceptor
from tests.support import apis

BROKER = {"topics": {"t": 1}}


class Exports:
    """Exported spans and metrics of an instrumented process."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader])

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        found = (scope.metrics for each in data.resource_metrics for scope in each.scope_metrics)
        named = [metric for metrics in found for metric in metrics if metric.name == name]
        return [point for metric in named for point in metric.data.data_points]


@contextmanager
def instrumented(**options: Any) -> Iterator[Exports]:
    exports, instrumentor = Exports(), KprodInstrumentor()
    instrumentor.instrument(
        tracer_provider=exports.tracer_provider, meter_provider=exports.meter_provider, **options
    )
    try:
        yield exports
    finally:
        instrumentor.uninstrument()
        exports.tracer_provider.shutdown()
        exports.meter_provider.shutdown()


@pytest.fixture
def exports() -> Iterator[Exports]:
    with instrumented() as made:
        yield made


@pytest.mark.parametrize("api", apis.SENDING)
async def test_every_api_is_traced(
    exports: Exports, broker: EmbeddedBroker, api: Callable[[str], Any]
) -> None:
    """A child of the program's span, with the attributes of the semantic conventions."""
    tracer = exports.tracer_provider.get_tracer("application")
    with tracer.start_as_current_span("request") as request:
        async with api(broker.bootstrap_servers):
            pass
    sent = next(span for span in exports.spans() if span.name == "send t")
    assert sent.parent is not None
    assert sent.parent.span_id == request.get_span_context().span_id
    attributes = dict(sent.attributes or {})
    assert attributes.pop("messaging.client.id")
    assert attributes == {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "t",
    }
    (record,) = broker.records("t")
    assert sent.context is not None
    assert f"{sent.context.span_id:016x}" in (dict(record.headers)["traceparent"] or b"").decode()


def test_the_meter_reads_every_producer(exports: Exports, broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with (
        kprod.KafkaProducer(client_id="one", bootstrap_servers=servers) as one,
        kprod.KafkaProducer(client_id="two", bootstrap_servers=servers) as two,
    ):
        one.send("t", b"v").get(30)
        two.flush()
        totals = exports.points("kprod.record-send-total")
        assert {(p.attributes["messaging.client.id"], p.value) for p in totals} == {
            ("one", 1),
            ("two", 0),
        }
        (of_topic,) = exports.points("kprod.topic.record-send-total")
        assert of_topic.attributes["messaging.destination.name"] == "t"
        nodes = exports.points("kprod.node.request-total")
        assert "1" in {point.attributes["server.id"] for point in nodes}
        stored, failed = exports.points("messaging.client.sent.messages")
        assert (stored.value, failed.value) == (1, 0)
        assert failed.attributes["error.type"] == "_OTHER"


def test_a_tracing_interceptor_of_the_application_replaces_ours(
    exports: Exports, broker: EmbeddedBroker
) -> None:
    tracing = TracingInterceptor(exports.tracer_provider.get_tracer("its own"))
    with kprod.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, interceptors=[tracing]
    ) as producer:
        producer.send("t", b"v", headers=[("own", b"1")], partition=0).get(30)
        with pytest.raises(kprod.PartitionError):
            producer.send("t", b"v", partition=9)
    span, second, failed = exports.spans()
    assert (span.name, second.name) == ("send t", "send t")
    assert dict(span.attributes or {})["messaging.destination.partition.id"] == "0"
    assert dict(failed.attributes or {})["error.type"] == "PartitionError"
    (record,) = broker.records("t")
    headers = dict(record.headers)
    assert span.context is not None
    assert headers["own"] == b"1"
    assert f"{span.context.trace_id:032x}".encode() in (headers["traceparent"] or b"")


@pytest.mark.usefixtures("exports")
def test_interceptors_can_be_given_by_every_option_name() -> None:
    own = TracingInterceptor()
    spelled: list[Any] = [{"interceptor_classes": [own]}, {"interceptor.classes": [own]}]
    for options in spelled:
        kprod.KafkaProducer(bootstrap_servers="127.0.0.1:1", **options).close(0)
    with pytest.raises(kprod.ConfigError, match="interceptors"):
        kprod.KafkaProducer(bootstrap_servers="127.0.0.1:1", interceptors=5)  # type: ignore[arg-type]


def test_a_pickle_contains_no_instrumentation(exports: Exports, broker: EmbeddedBroker) -> None:
    with kprod.KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        pickled = pickle.dumps(producer)
    assert b"observability" not in pickled
    assert b"opentelemetry" not in pickled


async def test_nothing_is_traced_after_uninstrument(broker: EmbeddedBroker) -> None:
    with instrumented() as exports:
        pass
    async with apis.native(broker.bootstrap_servers):
        pass
    assert exports.spans() == []


def test_the_span_of_a_failed_delivery_is_a_child_of_the_record_span(exports: Exports) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        producer = kprod.KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            linger_ms=100,
            request_timeout_ms=100,
            delivery_timeout_ms=300,
        )
        producer.partitions_for("t")
        future = producer.send("t", b"v")
    with pytest.raises(kprod.DeliveryTimeoutError):
        future.get(60)
    producer.close()
    queued, failed = exports.spans()
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "DeliveryTimeoutError"
    assert failed.parent is not None
    assert queued.context is not None
    assert failed.parent.span_id == queued.context.span_id


# Together with the instrumentation of the replaced clients ------------------------------------


CONTRIBS: list[tuple[Callable[[str], Any], str]] = [
    (apis.kafka_python, "kafka.KafkaInstrumentor"),
    (apis.confluent, "confluent_kafka.ConfluentKafkaInstrumentor"),
    (apis.confluent_serializing, "confluent_kafka.ConfluentKafkaInstrumentor"),
    (apis.confluent_asyncio, "confluent_kafka.ConfluentKafkaInstrumentor"),
    (apis.aiokafka, "aiokafka.AIOKafkaInstrumentor"),
]
"""APIs, and the instrumentation of the clients that they replace."""


@pytest.mark.parametrize(("api", "kind"), CONTRIBS)
async def test_instrumentation_of_opentelemetry_contrib_adds_no_second_span(
    exports: Exports, broker: EmbeddedBroker, api: Callable[[str], Any], kind: str
) -> None:
    """A program may keep it after switching to kprod."""
    instrumentor = resolve_name(f"opentelemetry.instrumentation.{kind}")()
    instrumentor.instrument(tracer_provider=exports.tracer_provider)
    try:
        async with api(broker.bootstrap_servers):
            pass
    finally:
        instrumentor.uninstrument()
    assert [span.name for span in exports.spans()] == ["send t"]


def test_a_producer_wrapped_by_opentelemetry_contrib_has_only_its_span(
    exports: Exports, broker: EmbeddedBroker
) -> None:
    """``instrument_producer`` works and makes the record's only span."""
    from kprod.confluent import Producer

    own: Any
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as own:
        producer: Any = ConfluentKafkaInstrumentor.instrument_producer(
            own, tracer_provider=exports.tracer_provider
        )
        producer.produce("t", b"v")
        assert producer.flush(30) == 0
    (span,) = exports.spans()
    assert span.name == "t send"  # contrib's
    (record,) = broker.records("t")
    assert [name for name, _ in record.headers] == ["traceparent"]


@pytest.mark.parametrize("source", ["argument", "variable"])
def test_a_bulk_call_can_be_one_span(
    source: str, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"spans": "call"} if source == "argument" else {}
    monkeypatch.setenv("OTEL_PYTHON_KPROD_SPANS", "record" if options else "call")
    with (
        instrumented(**options) as exports,
        kprod.KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("t", b"alone").get(30)
        producer.send_many("t", [b"a", b"b", b"c"]).get(30)
        producer.send_many("t", [b"own"], headers=[[("h", b"x")]]).get(30)
    many, own = exports.spans()
    assert many.name == "send t"
    counts = [dict(span.attributes or {})["messaging.batch.message_count"] for span in (many, own)]
    assert counts == [3, 1]
    traceparents = [dict(record.headers).get("traceparent") for record in broker.records("t")]
    assert traceparents[0] is traceparents[4] is None
    context = many.get_span_context()
    assert context is not None
    trace_id = f"{context.trace_id:032x}".encode()
    assert all(each is not None and each.split(b"-")[1] == trace_id for each in traceparents[1:4])


def test_an_invalid_kind_of_span_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_KPROD_SPANS", "batch")
    with pytest.raises(kprod.ConfigError, match="record or call"):
        KprodInstrumentor().instrument()


# Records that wait for memory -------------------------------------------------------------------

TOPICS = [f"device-{number}" for number in range(40)]


def sent_by_confluent(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    small = {"batch.size": 16_384, "queue.buffering.max.kbytes": 32, "linger.ms": 50}
    with kprod.confluent.Producer({"bootstrap.servers": servers, **small}) as producer:
        for topic in TOPICS:
            producer.produce(topic, b"v")
        for topic in TOPICS:  # afterwards, because ``produce`` refuses records while memory is full
            broker.create_topic(topic, 1)
        assert producer.flush(60) == 0


def sent_by_aio(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    for topic in TOPICS:
        broker.create_topic(topic, 1)

    async def main() -> None:
        async with kprod.aio.Producer(
            bootstrap_servers=servers, batch_size=16_384, buffer_memory=32_768, linger_ms=50
        ) as producer:
            sent = (producer.send_and_wait(topic, b"v") for topic in TOPICS)
            await asyncio.gather(*sent)

    asyncio.run(main())


@pytest.mark.parametrize("send", [sent_by_confluent, sent_by_aio])
def test_a_record_that_waits_for_memory_has_one_span(
    send: Callable[[EmbeddedBroker], None], exports: Exports
) -> None:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        send(broker)
        header_counts = [len(broker.records(topic)[0].headers) for topic in TOPICS]
    assert header_counts == [1] * len(TOPICS)
    assert sorted(span.name for span in exports.spans()) == sorted(f"send {t}" for t in TOPICS)


APP = """
import sys
from kprod.kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=sys.argv[1])
producer.send("t", b"v").get(timeout=30)
producer.close()
"""
ENVIRONMENT = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "",
}


def test_opentelemetry_instrument_traces_and_measures_an_unchanged_program(
    tmp_path: Path, broker: EmbeddedBroker
) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    command = Path(sys.executable).with_name("opentelemetry-instrument")
    ran = subprocess.run(
        [command, sys.executable, app, broker.bootstrap_servers],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    (record,) = broker.records("t")
    assert ran.returncode == 0, ran.stderr
    printed = list(objects(ran.stdout))
    (span,) = [each for each in printed if each.get("name") == "send t"]
    assert span["attributes"]["messaging.system"] == "kafka"
    traceparent = (dict(record.headers)["traceparent"] or b"").decode()
    assert traceparent.split("-")[1] == span["context"]["trace_id"].removeprefix("0x")
    assert "kprod.record-send-total" in set(_names(printed))


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that console exporters print."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def _names(printed: list[dict[str, Any]]) -> Iterator[str]:
    for each in printed:
        for resource in each.get("resource_metrics", ()):
            for scope in resource["scope_metrics"]:
                yield from (metric["name"] for metric in scope["metrics"])
