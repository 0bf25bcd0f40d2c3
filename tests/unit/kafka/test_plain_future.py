"""The future of the face that anybody may settle."""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest

from kprod.kafka import Future
from kprod.kafka.errors import KafkaTimeoutError


def test_callbacks_are_called_in_order_and_later_ones_at_once() -> None:
    heard: list[object] = []
    future = Future()
    future.add_callback(heard.append).add_callback(lambda extra, v: heard.append((extra, v)), 1)
    future.add_errback(heard.append)
    future.success(7)
    future.add_both(heard.append)
    assert heard == [7, (1, 7), 7]
    assert (future.succeeded(), future.failed(), future.retriable()) == (True, False, False)


def test_an_error_reaches_errbacks_and_the_chain() -> None:
    first, second = Future(), Future()
    first.chain(second)
    first.failure(KafkaTimeoutError)
    assert second.failed()
    assert second.retriable()
    assert second.exception is first.exception
    with pytest.raises(TypeError):
        Future().failure("text")  # type: ignore[arg-type]


def test_what_a_callback_raises_is_logged_and_raised_where_that_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Strict(Future):
        error_on_callbacks = True

    def fail(_: object) -> None:
        raise LookupError

    with caplog.at_level(logging.ERROR):
        Future().add_callback(fail).success(1)
        with pytest.raises(LookupError):
            Strict().add_callback(fail).success(1)
    assert len(caplog.records) == 2


def _outcome(future: Future) -> Generator[Future, None, object]:
    async def wait() -> object:
        return await future

    return wait().__await__()


def test_a_coroutine_gets_the_outcome_at_once_or_hands_the_future_to_its_loop() -> None:
    with pytest.raises(StopIteration) as stored:
        next(_outcome(Future().success(7)))
    assert stored.value.value == 7
    with pytest.raises(LookupError):
        next(_outcome(Future().failure(LookupError())))
    pending = Future()
    waiting = _outcome(pending)
    assert next(waiting) is pending
    pending.success(8)
    with pytest.raises(StopIteration) as resumed:
        next(waiting)
    assert resumed.value.value == 8
