"""``oauth_cb``: asked when the producer is made, again before a token expires, and its failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kprod.broker import Authentication, EmbeddedBroker
from kprod.broker.network.listener import Listener
from kprod.confluent import KafkaError, KafkaException, Producer
from kprod.confluent.credentials import OAuthTokens
from kprod.errors import SaslAuthenticationError
from tests.integration.confluent.test_producer import LONG, Reports
from tests.support.fake_clock import FakeClock
from tests.support.guarded_broker import unsigned_token

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
