"""``error_cb`` and ``oauth_cb``: what went wrong with a broker, and tokens to log in with."""

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


class Heard:
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


def test_a_forked_child_hears_of_its_own_connections() -> None:
    heard = Heard()
    down = [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]

    def hears() -> str:
        producer.produce("t", "value")
        while KafkaError._ALL_BROKERS_DOWN not in heard.codes:
            producer.poll(LONG)
        return "heard" if heard.codes == down else repr(heard.errors)

    options = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "error_cb": heard}
    with Producer({**options, "message.timeout.ms": 1000}) as producer:
        assert hears() == "heard"
        heard.errors.clear()
        assert in_child(by_python, hears) == "heard"


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


OPTIONS = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_producer_logs_in_with_the_token_it_was_given() -> None:
    asked: list[Any] = []

    def oauth_cb(config: Any) -> tuple[str, float]:
        asked.append(config)
        return unsigned_token(300), time.time() + 300

    reports = Reports()
    login = Authentication(mechanisms=("OAUTHBEARER",))
    listener = Listener(name="SASL", authentication=login)
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        options = {**OPTIONS, "bootstrap.servers": broker.bootstrap_servers, "oauth_cb": oauth_cb}
        with Producer({**options, "sasl.oauthbearer.config": "mine"}) as producer:
            assert asked == ["mine"]
            producer.produce("t", "value", on_delivery=reports)
            assert producer.flush(LONG) == 0
    assert reports.codes == [None]


def raises(config: Any) -> Any:
    raise ValueError("the secret is 42")


@pytest.mark.parametrize(
    "callback",
    [
        raises,
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
def test_no_producer_is_made_without_a_token(callback: Callable[[Any], Any]) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer({**OPTIONS, "oauth_cb": callback})
    assert caught.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert "42" not in str(caught.value)


def test_a_callback_is_called() -> None:
    with pytest.raises(TypeError, match="oauth_cb"):
        Producer({**OPTIONS, "oauth_cb": "token"})


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


def test_a_token_is_used_until_its_end_while_there_is_no_other(clock: FakeClock) -> None:
    answers: list[Any] = [("a", clock.now + 100)]
    failures: list[KafkaError] = []

    def oauth_cb(config: Any) -> Any:
        return answers.pop() if answers else raises(config)

    tokens = OAuthTokens(oauth_cb, lambda: None, clock.monotonic)
    tokens.keep_fresh(failures.append)
    tokens.close()  # from here on only logins replace it
    clock.now += 81
    assert tokens.token() == tokens.token() == "a"
    assert [failure.code() for failure in failures] == [KafkaError._AUTHENTICATION]
    assert "ValueError" in failures[0].str()
    clock.now += 10  # then it is asked again
    assert tokens.token() == "a"
    assert len(failures) == 2
    clock.now += 10
    with pytest.raises(SaslAuthenticationError, match="expired"):
        tokens.token()


@pytest.mark.parametrize("expires", [1.8e12, float("inf")])
def test_a_token_that_lasts_for_ever_ends_no_thread(expires: float) -> None:
    """Milliseconds where seconds are meant, say: no lock can be waited for as long."""
    tokens = OAuthTokens(lambda config: ("token", expires), lambda: None)
    before = set(threading.enumerate())
    tokens.keep_fresh(lambda error: None)
    (thread,) = set(threading.enumerate()) - before
    tokens.close()
    thread.join(LONG)
    assert tokens.token() == "token"


def test_error_cb_hears_of_a_token_that_could_not_be_replaced_while_nobody_logs_in() -> None:
    heard: list[KafkaError] = []
    calls: list[Any] = []

    def oauth_cb(config: Any) -> tuple[str, float]:
        calls.append(config)
        if len(calls) == 2:
            raises(config)
        return "token", time.time() + 0.1

    with Producer({**OPTIONS, "oauth_cb": oauth_cb, "error_cb": heard.append}) as producer:
        while not heard:
            producer.poll(LONG)
    assert heard[0] == KafkaError._AUTHENTICATION
