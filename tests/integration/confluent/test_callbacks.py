"""``error_cb`` reports broker errors, ``oauth_cb`` returns login tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kprod.broker import Authentication, EmbeddedBroker, make_listener, tls_context
from kprod.broker.network.listener import Listener
from kprod.confluent import KafkaError, KafkaException, Producer
from kprod.confluent.credentials import OAuthTokens
from kprod.confluent.error_codes import LOCAL
from kprod.errors import SaslAuthenticationError
from tests.integration.confluent.test_producer import LONG, Reports
from tests.support.certificates import Certificates
from tests.support.fake_clock import FakeClock
from tests.support.forks import by_python, in_child
from tests.support.guarded_broker import unsigned_token
from tests.support.ports import free_port


class Errors:
    def __init__(self) -> None:
        self.received: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        self.received.append(error)

    @property
    def codes(self) -> list[int]:
        return [error.code() for error in self.received]


def errors_until(code: int, **options: Any) -> Errors:
    """Errors of an idle producer up to the one with this code."""
    errors = Errors()
    named = {name.replace("_", "."): value for name, value in options.items()}
    with Producer({**named, "error_cb": errors}) as producer:
        while code not in errors.codes:
            producer.poll(LONG)
    return errors


def test_error_cb_reports_all_brokers_down_without_records() -> None:
    servers = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    errors = errors_until(KafkaError._ALL_BROKERS_DOWN, bootstrap_servers=servers)
    assert errors.codes == [*[KafkaError._TRANSPORT] * 2, KafkaError._ALL_BROKERS_DOWN]
    assert errors.received[-1].str() == "2/2 brokers are down"
    assert not any(error.fatal() for error in errors.received)


def test_all_brokers_down_is_not_reported_while_one_is_up() -> None:
    errors = Errors()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        servers = f"127.0.0.1:{free_port()},{broker.bootstrap_servers}"
        with Producer({"bootstrap.servers": servers, "error_cb": errors}) as producer:
            producer.produce("t", "value")
            assert producer.flush(LONG) == 0
    assert KafkaError._ALL_BROKERS_DOWN not in errors.codes


def test_a_repeated_error_of_a_broker_is_reported_once() -> None:
    errors = Errors()
    options = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "error_cb": errors}
    pace = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10, "message.timeout.ms": 300}
    with Producer({**options, **pace}) as producer:
        producer.produce("t", "value")
        assert producer.flush(LONG) == 0
    assert errors.codes == [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]


def test_all_brokers_down_is_reported_again_after_a_recovery() -> None:
    errors = Errors()
    with EmbeddedBroker(topics={"t": 1}) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers, "error_cb": errors}
        with Producer({**options, "reconnect.backoff.max.ms": 100}) as producer:
            for times in (1, 2):
                producer.produce("t", "value")
                assert producer.flush(LONG) == 0
                broker.stop_node(1)
                while errors.codes.count(KafkaError._ALL_BROKERS_DOWN) < times:
                    producer.poll(LONG)
                broker.start_node(1)


def test_error_cb_of_a_forked_child_reports_its_own_connections() -> None:
    errors = Errors()
    down = [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]

    def report_all_down() -> str:
        producer.produce("t", "value")
        while KafkaError._ALL_BROKERS_DOWN not in errors.codes:
            producer.poll(LONG)
        return "ok" if errors.codes == down else repr(errors.received)

    options = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "error_cb": errors}
    with Producer({**options, "message.timeout.ms": 1000}) as producer:
        assert report_all_down() == "ok"
        errors.received.clear()
        assert in_child(by_python, report_all_down) == "ok"


def test_error_cb_reports_an_unresolvable_host_name() -> None:
    errors = errors_until(KafkaError._RESOLVE, bootstrap_servers="unknown.invalid:9092")
    assert LOCAL[KafkaError._RESOLVE][1] in errors.received[0].str()


def test_error_cb_reports_a_refused_password_without_the_password() -> None:
    listener = Listener(name="SASL", authentication=Authentication({"user": "right"}))
    with EmbeddedBroker(listeners=[listener]) as broker:
        errors = errors_until(
            KafkaError._AUTHENTICATION,
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanisms="PLAIN",
            sasl_username="user",
            sasl_password="wrong-42",
        )
    assert "wrong-42" not in errors.received[0].str()


def test_error_cb_reports_an_untrusted_certificate(certificates: Certificates) -> None:
    listener = make_listener("SSL", tls=tls_context(certificates.server))
    with EmbeddedBroker(listeners=[listener]) as broker:
        errors = errors_until(
            KafkaError._SSL,
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_ca_location=certificates.other_ca,
        )
    assert "ertificate" in errors.received[0].str()


OPTIONS = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_producer_logs_in_with_the_token_of_oauth_cb() -> None:
    configs: list[Any] = []

    def oauth_cb(config: Any) -> tuple[str, float]:
        configs.append(config)
        return unsigned_token(300), time.time() + 300

    reports = Reports()
    login = Authentication(mechanisms=("OAUTHBEARER",))
    listener = Listener(name="SASL", authentication=login)
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        options = {**OPTIONS, "bootstrap.servers": broker.bootstrap_servers, "oauth_cb": oauth_cb}
        with Producer({**options, "sasl.oauthbearer.config": "mine"}) as producer:
            assert configs == ["mine"]
            producer.produce("t", "value", on_delivery=reports)
            assert producer.flush(LONG) == 0
    assert reports.codes == [None]


def fail(config: Any) -> Any:
    raise ValueError("the secret is 42")


@pytest.mark.parametrize(
    "callback",
    [
        fail,
        lambda config: None,
        lambda config: "token",
        lambda config: ("token",),
        lambda config: ("token", "tomorrow"),
        lambda config: ("token", 5.0),
        lambda config: ("token", time.time() + 300, "alice", {"auth": "no"}),
        lambda config: ("token", time.time() + 300, "alice", {"a": 1}),
        lambda config: ("token", time.time() + 300, "alice", {}, None),
    ],
)
def test_the_constructor_raises_without_a_valid_token(callback: Callable[[Any], Any]) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer({**OPTIONS, "oauth_cb": callback})
    assert caught.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert "42" not in str(caught.value)


def test_a_token_is_replaced_before_it_expires(clock: FakeClock) -> None:
    names, more = iter("abc"), ("alice", {"logicalCluster": "lkc-1"})
    tokens = OAuthTokens(
        lambda config: (next(names), clock.now + 100, *more), lambda: None, clock.monotonic
    )
    clock.now += 79
    assert tokens.token() == "a"
    clock.now += 2
    assert tokens.token() == "b"
    assert tokens.extensions() == (("logicalCluster", "lkc-1"),)


def test_a_token_is_used_until_it_expires_if_oauth_cb_fails(clock: FakeClock) -> None:
    answers: list[Any] = [("a", clock.now + 100)]
    failures: list[KafkaError] = []

    def oauth_cb(config: Any) -> Any:
        return answers.pop() if answers else fail(config)

    tokens = OAuthTokens(oauth_cb, lambda: None, clock.monotonic)
    tokens.keep_fresh(failures.append)
    tokens.close()  # from here on only logins refresh it
    clock.now += 81
    assert tokens.token() == tokens.token() == "a"
    assert [failure.code() for failure in failures] == [KafkaError._AUTHENTICATION]
    assert "ValueError" in failures[0].str()
    clock.now += 10  # oauth_cb is called again
    assert tokens.token() == "a"
    assert len(failures) == 2
    clock.now += 10
    with pytest.raises(SaslAuthenticationError, match="expired"):
        tokens.token()


@pytest.mark.parametrize("expires", [1.8e12, float("inf")])
def test_a_huge_expiry_time_does_not_end_the_refresh_thread(expires: float) -> None:
    """For example milliseconds instead of seconds: too long for the timeout of a lock."""
    tokens = OAuthTokens(lambda config: ("token", expires), lambda: None)
    before = set(threading.enumerate())
    tokens.keep_fresh(lambda error: None)
    (thread,) = set(threading.enumerate()) - before
    tokens.close()
    thread.join(LONG)
    assert tokens.token() == "token"


def test_error_cb_reports_a_failed_token_refresh() -> None:
    errors: list[KafkaError] = []
    calls: list[Any] = []

    def oauth_cb(config: Any) -> tuple[str, float]:
        calls.append(config)
        if len(calls) == 2:
            fail(config)
        return "token", time.time() + 0.1

    with Producer({**OPTIONS, "oauth_cb": oauth_cb, "error_cb": errors.append}) as producer:
        while not errors:
            producer.poll(LONG)
    assert errors[0] == KafkaError._AUTHENTICATION
