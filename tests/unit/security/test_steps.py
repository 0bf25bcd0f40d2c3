"""Steps of a login: secrets are hidden, blocking calls run in a bounded number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kprod.config import ProducerConfig
from kprod.errors import SaslAuthenticationError
from kprod.security.composition import mechanism_of, steps_of
from kprod.security.steps import Message
from kprod.security.threaded_steps import MOST_THREADS, MOST_WAITING, StepThreads, ThreadedSteps


def test_the_repr_of_a_message_hides_its_content() -> None:
    message = Message(b"n,,\x01auth=Bearer secret\x01\x01")
    assert [repr(message), str(message), f"{message}"] == ["Message(24 bytes)"] * 3
    assert repr(Message(None)) == "Message(None)"


def steps_for(notify: Callable[[], None], mechanism: str, **options: Any) -> Any:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, **options}
    configured = mechanism_of(ProducerConfig.from_options(given))
    assert configured is not None
    return steps_of(configured)("broker", notify)


@pytest.mark.parametrize("option", ["sasl_plain_password", "sasl_credentials"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_slow_credentials_callback_does_not_block_the_sender(mechanism: str, option: str) -> None:
    """The callback may query a vault, and the sender serves all brokers."""
    called, ready, notified = threading.Event(), threading.Event(), threading.Event()

    def secret() -> Any:
        called.set()
        ready.wait(5)
        return ("u", "p") if option == "sasl_credentials" else "p"

    options: dict[str, Any] = {option: secret}
    if option == "sasl_plain_password":
        options["sasl_plain_username"] = "u"
    steps = steps_for(notified.set, mechanism, **options)
    steps.begin(None)
    assert called.wait(5)
    assert steps.take() is None
    ready.set()
    assert notified.wait(20)
    message = steps.take()
    assert message is not None
    assert message.data is not None


def test_a_plain_password_needs_no_thread() -> None:
    options = {"sasl_plain_username": "u", "sasl_plain_password": "p"}
    steps = steps_for(lambda: None, "PLAIN", **options)
    steps.begin(None)
    assert steps.take() == Message(b"\0u\0p")


class Slow:
    def __init__(self, ready: threading.Event, failure: type[BaseException] | None = None) -> None:
        self._ready = ready
        self._failure = failure

    def respond(self, challenge: bytes | None) -> bytes | None:
        assert self._ready.wait(60)
        if self._failure is not None:
            raise self._failure("secret")
        return b"token"


def threads() -> int:
    return sum(thread.name == "kprod-login" for thread in threading.enumerate())


def test_a_hanging_provider_occupies_a_bounded_number_of_threads() -> None:
    ready, notified = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    before = threads()
    steps = [ThreadedSteps(Slow(ready), notified.release, shared) for _ in range(3 * MOST_THREADS)]
    for each in steps:
        each.begin(None)
    assert threads() - before <= MOST_THREADS
    assert [each.take() for each in steps] == [None] * len(steps)
    ready.set()
    for _ in steps:
        assert notified.acquire(timeout=60)
    assert {each.take() for each in steps} == {(b"token",)}


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit])
def test_steps_after_a_failed_one_still_run(failure: type[BaseException]) -> None:
    ready, notified = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    steps = [
        ThreadedSteps(Slow(ready, failure), notified.release, shared)
        for _ in range(MOST_THREADS + 9)
    ]
    for each in steps:
        each.begin(None)
    ready.set()
    for _ in steps:
        assert notified.acquire(timeout=60)
    for each in steps:
        with pytest.raises(SaslAuthenticationError, match=f"computed: builtins.{failure.__name__}"):
            each.take()


def test_the_oldest_queued_steps_are_dropped_beyond_the_limit() -> None:
    """The provider of a long-running producer may hang for days."""
    ready, notified = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    for _ in range(MOST_THREADS + MOST_WAITING + 50):
        ThreadedSteps(Slow(ready), notified.release, shared).begin(None)
    ready.set()
    for _ in range(MOST_THREADS + MOST_WAITING):
        assert notified.acquire(timeout=60)
    last = ThreadedSteps(Slow(ready), notified.release, shared)
    last.begin(None)
    assert notified.acquire(timeout=60)
    assert last.take() == (b"token",)
    assert not notified.acquire(blocking=False)
