from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator

import pytest

from kprod.transport.wakeup import WakeUp, open_eventfd, open_pipe
from tests.support.interruption import interruptible, repeat_until_interrupted


@pytest.fixture(params=[open_eventfd, open_pipe, None])
def wakeup(request: pytest.FixtureRequest) -> Iterator[WakeUp]:
    opener: Callable[[], tuple[int, int]] | None = request.param
    wakeup = WakeUp(opener)
    yield wakeup
    wakeup.close()


def is_readable(wakeup: WakeUp, timeout: float = 0) -> bool:
    return bool(select.select([wakeup], [], [], timeout)[0])


def test_it_is_readable_from_set_to_clear(wakeup: WakeUp) -> None:
    assert not is_readable(wakeup)
    for _ in range(3):
        wakeup.set()
        assert is_readable(wakeup)
        wakeup.clear()
        assert not is_readable(wakeup)


def test_setting_it_often_is_setting_it_once(wakeup: WakeUp) -> None:
    for _ in range(100_000):  # more than a pipe holds
        wakeup.set()
    wakeup.clear()
    assert not is_readable(wakeup)


def test_clearing_what_is_not_set_does_not_block(wakeup: WakeUp) -> None:
    wakeup.clear()
    wakeup.set()
    assert is_readable(wakeup)


def test_once_closed_it_does_nothing(wakeup: WakeUp) -> None:
    wakeup.set()
    wakeup.close()
    wakeup.set()
    wakeup.clear()
    wakeup.close()


def test_another_thread_sees_it(wakeup: WakeUp) -> None:
    waiter = threading.Thread(target=lambda: is_readable(wakeup, 20))
    waiter.start()
    wakeup.set()
    waiter.join(20)
    assert not waiter.is_alive()


@pytest.mark.threads
def test_an_exception_at_any_moment_of_setting_it_does_not_keep_the_next_from_waking(
    wakeup: WakeUp,
) -> None:
    def set_and_clear() -> None:
        wakeup.set()
        wakeup.clear()

    with interruptible():
        for number in range(200):
            repeat_until_interrupted(set_and_clear, 0.0002 + number * 3e-7)
            wakeup.set()
            assert is_readable(wakeup), "an interrupted call has left it marked as set"
            wakeup.clear()
            assert not is_readable(wakeup), "an interrupted call cannot be cleared any more"


def test_abandoned_it_does_nothing(
    wakeup: WakeUp,
) -> None:
    wakeup.set()
    wakeup.abandon()
    wakeup.abandon()
    wakeup.set()
    wakeup.clear()
    wakeup.close()
