"""Configuration of the confluent producer, and callbacks other than delivery reports."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

import kprod
import kprod.confluent
import kprod.kafka
from kprod.broker import EmbeddedBroker, make_listener, tls_context
from kprod.broker.faults import Fault
from kprod.broker.protocol.api_key import ApiKey
from kprod.confluent import KafkaError, KafkaException, Message, Producer, ThrottleEvent
from tests.integration.confluent.test_producer import LONG, Reports
from tests.support.certificates import Certificates
from tests.support.kio_messages import read_request
from tests.support.ports import free_port

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": "password",
}
LOGIN = {"security.protocol": "sasl_plaintext", "sasl.username": "user", "sasl.password": "1234"}


def test_none_means_that_an_option_is_not_set() -> None:
    statistics: list[dict[str, Any]] = []
    options = {"bootstrap.servers": None, "statistics.interval.ms": 1}
    with Producer(
        {**options, "stats_cb": lambda text: statistics.append(json.loads(text))}
    ) as producer:
        producer.produce("t", b"v")
        while not statistics or statistics[-1]["msg_cnt"] == 0:
            producer.poll(LONG)
        producer.purge()
    assert (statistics[-1]["brokers"], statistics[-1]["msg_cnt"]) == ({}, 1)


def test_default_topic_config_overrides_other_options() -> None:
    reports = Reports()
    topic_options = {"message.timeout.ms": 100}
    options = {"message.timeout.ms": 600_000, "default.topic.config": topic_options}
    with Producer({"bootstrap.servers": f"127.0.0.1:{free_port()}", **options}) as producer:
        producer.produce("t", "value", on_delivery=reports)
        assert producer.flush(LONG) == 0
    assert reports.codes == ["_MSG_TIMED_OUT"]
    assert "Message timed out" in reports.received[0][1].error().str()


def test_poll_calls_throttle_cb(broker: EmbeddedBroker) -> None:
    events: list[ThrottleEvent] = []
    broker.faults.add(Fault(api=ApiKey.PRODUCE, throttle_ms=20))
    options = {"bootstrap.servers": broker.bootstrap_servers, "throttle_cb": events.append}
    with Producer(options) as producer:
        producer.produce("t", "value")
        while not events:
            producer.poll(LONG)
    assert events[0] == (broker.bootstrap_servers, events[0].broker_id, 0.02)
    assert str(events[0]).endswith(" throttled for 20 ms")


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"profile": "durable"}, "delivery_timeout_ms", 1_800_000),
        ({"profile": "durable", "acks": 1}, "enable_idempotence", False),
        ({"profile": "throughput"}, "linger_ms", 50),
        ({"profile": "throughput"}, "buffer_memory", 128 << 20),
        ({"profile": "throughput", "queue.buffering.max.kbytes": 4096}, "buffer_memory", 4 << 20),
        ({"profile": "throughput", "linger.ms": 7}, "linger_ms", 7),
        ({"buffer.memory": 3_000_000}, "buffer_memory", 3_000_000),
        ({"buffer.memory": "1000", "batch.size": 1000}, "buffer_memory", 1000),
        ({}, "buffer_memory", 256 << 20),
        ({"queue.buffering.max.kbytes": 9}, "buffer_memory", 2_000_000),
        ({"client.id": 42}, "client_id", "42"),
        ({"retries": "3"}, "retries", 3),
        ({"enable.idempotence": "1"}, "enable_idempotence", True),
    ],
)
def test_explicit_options_override_the_profile(
    options: dict[str, Any], name: str, value: object
) -> None:
    with Producer(options) as producer:
        native = producer.__kprod_producer__
        assert native is not None
        assert getattr(native.config, name) == value


def test_only_canonical_dns_lookup_is_refused() -> None:
    canonical = "resolve_canonical_bootstrap_servers_only"
    with pytest.raises(KafkaException, match="canonical names are not looked up: put them into"):
        Producer({"client.dns.lookup": canonical})
    classes: tuple[Any, ...] = kprod.KafkaProducer, kprod.kafka.KafkaProducer
    for make in classes:
        with pytest.raises(ValueError, match="client_dns_lookup cannot be used: canonical names"):
            make(bootstrap_servers="localhost:1", client_dns_lookup=canonical)
    Producer({"client.dns.lookup": "use_all_dns_ips"}).close()


def test_ssl_ca_location_probe_uses_the_certificates_of_the_system(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = Reports()
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca)
    listener = make_listener("SSL", tls=tls_context(certificates.server))
    with EmbeddedBroker(topics={"t": 1}, listeners=[listener]) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "ssl.ca.location": "probe"}
        with Producer({**TLS, **options}) as producer:
            producer.produce("t", "value", on_delivery=reports)
            assert producer.flush(LONG) == 0
    assert reports.codes == [None]


def test_delivery_report_only_error_reports_failures_only(broker: EmbeddedBroker) -> None:
    reports = Reports()
    broker.faults.add(Fault(api=ApiKey.PRODUCE, error=29))
    options = {"bootstrap.servers": broker.bootstrap_servers, "on_delivery": reports}
    with Producer({**options, "delivery.report.only.error": True}) as producer:
        for _ in range(2):
            producer.produce("t", "value")
            assert producer.flush(LONG) == 0
    assert reports.codes == ["TOPIC_AUTHORIZATION_FAILED"]


@pytest.mark.parametrize(("name", "keyless"), [("consistent", {0}), ("random", set(range(4)))])
def test_the_partitioners_consistent_and_random(name: str, keyless: set[int]) -> None:
    stored: dict[bytes | None, set[int | None]] = {}

    def collect(_error: KafkaError | None, message: Message) -> None:
        stored.setdefault(message.key(), set()).add(message.partition())

    with EmbeddedBroker(topics={"t": 4}) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": name}
        with Producer({**options, "on_delivery": collect}) as producer:
            for _ in range(200):
                for key in (b"one", b"two", None):
                    producer.produce("t", b"v", key)
    for key in (b"one", b"two"):
        keyed = {confluent_kafka.consistent(key, 4)}
        assert stored[key] == (keyed if name == "consistent" else keyless)
    assert stored[None] == keyless


TLS = {"security.protocol": "SSL"}
EMPTY: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("bootstrap.servers", "client.id", "transactional.id", "client.rack")),
    *((name, {}) for name in ("plugin.library.paths", "sasl.username", "group.id")),
    *((f"ssl.{name}.location", TLS) for name in ("ca", "certificate", "key", "crl", "keystore")),
    *((f"ssl.{name}", TLS) for name in ("ca.pem", "certificate.pem", "key.pem", "key.password")),
    *((f"ssl.{name}", TLS) for name in ("cipher.suites", "curves.list", "providers", "engine.id")),
    *((f"sasl.kerberos.{name}", SASL) for name in ("service.name", "principal", "keytab")),
    *((f"sasl.oauthbearer.{name}", SASL) for name in ("token.endpoint.url", "client.id", "scope")),
    ("sasl.oauthbearer.client.secret", SASL),
    ("https.ca.location", SASL),
]
"""Programs fill these from environment variables."""
UNUSED: list[dict[str, Any]] = [
    {"batch.num.messages": 100},
    {"session.timeout.ms": 6000, "auto.offset.reset": "earliest", "group.id": "g"},
    {"compression.level": "-1"},
    {"compression.level": 3, "compression.type": "snappy"},
    {"ssl.ca.location": "/no/such/file", "ssl.endpoint.identification.algorithm": "none"},
    {"sasl.mechanisms": "PLAIN", "sasl.username": "user", "sasl.password": "1234"},
    {**LOGIN, "sasl.mechanism": "PLAIN"},
    {"enable.sasl.oauthbearer.unsecure.jwt": False, "sasl.oauthbearer.method": "default"},
    {"topic.metadata.refresh.interval.ms": -1, "connections.max.idle.ms": 0},
    {"request.required.acks": "1", "metadata.broker.list": "127.0.0.1:1"},
    {"linger.ms": "0.5", "queue.buffering.max.kbytes": "9"},
]


@pytest.mark.parametrize("options", [*({**others, name: ""} for name, others in EMPTY), *UNUSED])
def test_options_that_confluent_kafka_accepts_are_accepted(options: dict[str, Any]) -> None:
    confluent_kafka.Producer(options).close()
    with Producer(options) as producer:
        assert producer


NUMBERS = (
    *("linger.ms", "queue.buffering.max.ms", "batch.size", "message.timeout.ms"),
    *("request.timeout.ms", "socket.timeout.ms", "statistics.interval.ms"),
    *("queue.buffering.max.messages", "compression.level", "retries"),
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no.such": ""}, 'No such configuration property: "no.such"'),
        ({"value.serializer": bytes}, 'No such configuration property: "value.serializer"'),
        ({**LOGIN, "sasl.mechanism": "PLAIN", "sasl.password": None}, "must be set"),
        ({"acks": ""}, "acks"),
        ({"compression.type": ""}, "compression"),
        ({"partitioner": "murmur"}, "partitioner"),
        ({"buffer.memory": 1, "queue.buffering.max.kbytes": 1}, "set only one of them"),
        *(({name: "abc"}, f"property \"{name}\": 'abc'") for name in NUMBERS),
        ({"message.timeout.ms": "1.5"}, 'property "message.timeout.ms"'),
        ({"linger.ms": "nan"}, 'property "linger.ms"'),
        ({"linger.ms": "inf"}, 'property "linger.ms"'),
        ({"batch.size": []}, 'property "batch.size"'),
    ],
    ids=str,
)
def test_invalid_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer(options)
    assert caught.value.args[0] == KafkaError._INVALID_ARG
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda options, logger: Producer({**options, "logger": logger}),
        lambda options, logger: Producer(options, logger=logger),
        lambda options, logger: Producer(**options, logger=logger),
    ],
    ids=["dict", "dict and keyword", "keywords"],
)
def test_a_given_logger_gets_the_log(unreachable: str, make: Callable[..., Producer]) -> None:
    stream = io.StringIO()
    logger = logging.Logger("mine")
    logger.addHandler(logging.StreamHandler(stream))
    with make({"bootstrap.servers": unreachable, "debug": "msg"}, logger) as producer:
        assert stream.getvalue().startswith("INIT [kprod-producer-")
        while "Connection refused" not in stream.getvalue():
            producer.poll(0.01)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("my-client", "1.2.3", "my-client 1.2.3"),
        ("-my client!", ".1+2.", "my-client 1-2"),  # as confluent-kafka writes them
        ("+", "+", f"kprod {kprod.__version__}"),
    ],
)
def test_client_software_name_and_version_are_sent_to_the_broker(
    name: str, version: str, expected: str
) -> None:
    """In the first request of a producer."""
    software = {"client.software.name": name, "client.software.version": version}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", **software})
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as sent:
            size = sent.read(4)
            _, request = read_request(
                ApiKey.API_VERSIONS, 3, size + sent.read(int.from_bytes(size))
            )
        producer.close()
    assert f"{request.client_software_name} {request.client_software_version}" == expected
