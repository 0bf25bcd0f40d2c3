"""Steps of logins: they show no secret, and wait for others in few threads, each in its turn."""

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


def test_a_message_does_not_show_what_it_says() -> None:
    message = Message(b"n,,\x01auth=Bearer secret\x01\x01")
    assert [repr(message), str(message), f"{message}"] == ["Message(24 bytes)"] * 3
    assert repr(Message(None)) == "Message(None)"


def steps_for(tell: Callable[[], None], mechanism: str, **options: Any) -> Any:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, **options}
    found = mechanism_of(ProducerConfig.from_options(given))
    assert found is not None
    return steps_of(found)("broker", tell)


@pytest.mark.parametrize("option", ["sasl_plain_password", "sasl_credentials"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_code_of_the_application_may_take_its_time(mechanism: str, option: str) -> None:
    """The sender works the steps out; while it waited for a vault, no broker got anything."""
    asked, ready, told = threading.Event(), threading.Event(), threading.Event()

    def secret() -> Any:
        asked.set()
        ready.wait(5)
        return ("u", "p") if option == "sasl_credentials" else "p"

    options: dict[str, Any] = {option: secret}
    if option == "sasl_plain_password":
        options["sasl_plain_username"] = "u"
    steps = steps_for(told.set, mechanism, **options)
    steps.begin(None)
    assert asked.wait(5)
    assert steps.take() is None
    ready.set()
    assert told.wait(20)
    message = steps.take()
    assert message is not None
    assert message.data is not None


def test_a_password_that_is_known_takes_no_thread() -> None:
    options = {"sasl_plain_username": "u", "sasl_plain_password": "p"}
    steps = steps_for(lambda: None, "PLAIN", **options)
    steps.begin(None)
    assert steps.take() == Message(b"\0u\0p")


class Slow:
    def __init__(self, ready: threading.Event, mistake: type[BaseException] | None = None) -> None:
        self._ready = ready
        self._mistake = mistake

    def respond(self, challenge: bytes | None) -> bytes | None:
        assert self._ready.wait(60)
        if self._mistake is not None:
            raise self._mistake("secret")
        return b"token"


def threads() -> int:
    return sum(thread.name == "kprod-login" for thread in threading.enumerate())


def test_a_provider_that_hangs_takes_few_threads_however_often_it_is_tried() -> None:
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    before = threads()
    steps = [ThreadedSteps(Slow(ready), told.release, shared) for _ in range(3 * MOST_THREADS)]
    for each in steps:
        each.begin(None)
    assert threads() - before <= MOST_THREADS
    assert [each.take() for each in steps] == [None] * len(steps)
    ready.set()
    for _ in steps:
        assert told.acquire(timeout=60)
    assert {each.take() for each in steps} == {(b"token",)}


@pytest.mark.parametrize("mistake", [RuntimeError, SystemExit])
def test_a_mistake_leaves_the_others_their_turn(mistake: type[BaseException]) -> None:
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    steps = [
        ThreadedSteps(Slow(ready, mistake), told.release, shared) for _ in range(MOST_THREADS + 9)
    ]
    for each in steps:
        each.begin(None)
    ready.set()
    for _ in steps:
        assert told.acquire(timeout=60)
    for each in steps:
        with pytest.raises(SaslAuthenticationError, match=f"computed: builtins.{mistake.__name__}"):
            each.take()


def test_a_thread_that_cannot_start_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile another step has begun to wait, as it was counted already."""
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    steps = [ThreadedSteps(Slow(ready), told.release, shared) for _ in range(MOST_THREADS + 1)]
    *first, waiting = steps[:MOST_THREADS]
    for each in first:
        each.begin(None)

    def fail(_: threading.Thread) -> None:
        waiting.begin(None)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            steps[-1].begin(None)
    ready.set()
    for _ in (*first, waiting):
        assert told.acquire(timeout=5)
    assert waiting.take() == (b"token",)


def test_steps_that_wait_are_forgotten_when_they_are_too_many() -> None:
    """A producer whose provider hangs for days tries again and again."""
    ready, told = threading.Event(), threading.Semaphore(0)
    shared = StepThreads()
    for _ in range(MOST_THREADS + MOST_WAITING + 50):
        ThreadedSteps(Slow(ready), told.release, shared).begin(None)
    ready.set()
    for _ in range(MOST_THREADS + MOST_WAITING):
        assert told.acquire(timeout=60)
    last = ThreadedSteps(Slow(ready), told.release, shared)
    last.begin(None)
    assert told.acquire(timeout=60)
    assert last.take() == (b"token",)
    assert not told.acquire(blocking=False)
