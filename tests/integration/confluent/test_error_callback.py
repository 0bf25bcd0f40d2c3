"""``error_cb``: what went wrong with a broker, in librdkafka's codes."""

from __future__ import annotations

from typing import Any

from kprod.broker import Authentication, EmbeddedBroker, make_listener, tls_context
from kprod.broker.network.listener import Listener
from kprod.confluent import KafkaError, Producer
from kprod.confluent.error_codes import LOCAL
from tests.integration.confluent.test_producer import LONG
from tests.support.certificates import Certificates
from tests.support.ports import free_port


class Heard:
    """The errors of an ``error_cb``."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        self.errors.append(error)

    @property
    def codes(self) -> list[int]:
        return [error.code() for error in self.errors]


def heard_until(code: int, **options: Any) -> Heard:
    """What a producer that nobody uses tells until it tells this."""
    heard = Heard()
    named = {name.replace("_", "."): value for name, value in options.items()}
    with Producer({**named, "error_cb": heard}) as producer:
        while code not in heard.codes:
            producer.poll(LONG)
    return heard


def test_nobody_has_to_produce_to_hear_that_all_brokers_are_down() -> None:
    nobody = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    heard = heard_until(KafkaError._ALL_BROKERS_DOWN, bootstrap_servers=nobody)
    assert heard.codes == [*[KafkaError._TRANSPORT] * 2, KafkaError._ALL_BROKERS_DOWN]
    assert heard.errors[-1].str() == "2/2 brokers are down"
    assert not any(error.fatal() for error in heard.errors)


def test_one_broker_that_is_left_is_enough() -> None:
    heard = Heard()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        servers = f"127.0.0.1:{free_port()},{broker.bootstrap_servers}"
        with Producer({"bootstrap.servers": servers, "error_cb": heard}) as producer:
            producer.produce("t", "value")
            assert producer.flush(LONG) == 0
    assert KafkaError._ALL_BROKERS_DOWN not in heard.codes


def test_the_same_error_of_a_broker_is_told_once() -> None:
    heard = Heard()
    options = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "error_cb": heard}
    pace = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10, "message.timeout.ms": 300}
    with Producer({**options, **pace}) as producer:
        producer.produce("t", "value")
        assert producer.flush(LONG) == 0
    assert heard.codes == [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]


def test_all_brokers_are_down_again_after_one_was_there() -> None:
    heard = Heard()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "error_cb": heard}
        with Producer({**options, "reconnect.backoff.max.ms": 100}) as producer:
            for times in (1, 2):
                producer.produce("t", "value")
                assert producer.flush(LONG) == 0
                broker.stop_node(1)
                while heard.codes.count(KafkaError._ALL_BROKERS_DOWN) < times:
                    producer.poll(LONG)
                broker.start_node(1)


def test_a_name_that_nobody_knows() -> None:
    heard = heard_until(KafkaError._RESOLVE, bootstrap_servers="nobody.invalid:9092")
    assert LOCAL[KafkaError._RESOLVE][1] in heard.errors[0].str()


def test_a_password_that_the_broker_refuses() -> None:
    listener = Listener(name="SASL", authentication=Authentication({"user": "right"}))
    with EmbeddedBroker(listeners=[listener]) as broker:
        heard = heard_until(
            KafkaError._AUTHENTICATION,
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanisms="PLAIN",
            sasl_username="user",
            sasl_password="wrong-42",
        )
    assert "wrong-42" not in heard.errors[0].str()


def test_a_certificate_of_somebody_else(certificates: Certificates) -> None:
    listener = make_listener("SSL", tls=tls_context(certificates.server))
    with EmbeddedBroker(listeners=[listener]) as broker:
        heard = heard_until(
            KafkaError._SSL,
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_ca_location=certificates.other_ca,
        )
    assert "ertificate" in heard.errors[0].str()
