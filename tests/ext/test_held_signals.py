"""Signal handlers are held back during critical work, and then run once each."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from kprod_ext import hold_signals, let_signals_in, raised_by_signal
from tests.support.interruption import Interrupted, interruptible

LONG = 20.0


class HandlerError(Exception):
    """Raised by a handler; not a KeyboardInterrupt."""


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Signals USR1 and USR2 that were handled. The handler of USR2 raises."""
    handled: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        handled.append(number)

    def record_and_raise(number: int, frame: FrameType | None) -> None:
        handled.append(number)
        raise HandlerError

    before = signal.signal(signal.SIGUSR1, record), signal.signal(signal.SIGUSR2, record_and_raise)
    yield handled
    signal.signal(signal.SIGUSR1, before[0])
    signal.signal(signal.SIGUSR2, before[1])


def send_to_self(number: int) -> None:
    os.kill(os.getpid(), number)
    for _ in range(1000):
        pass  # gives a handler the time to run


def test_a_handler_installed_by_c_code_is_kept(handled: list[int]) -> None:
    """As those of uWSGI, without which its workers would not end. Python does not see them."""
    called: list[int] = []
    install = ctypes.CDLL(None).signal
    install.restype, install.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, ctypes.c_int)(called.append)
    pythons = install(signal.SIGUSR1, ctypes.cast(function, ctypes.c_void_p))
    try:
        hold_signals(send_to_self, signal.SIGUSR1)
        send_to_self(signal.SIGUSR1)
    finally:
        install(signal.SIGUSR1, pythons)
    assert called == [signal.SIGUSR1] * 2
    hold_signals(send_to_self, signal.SIGUSR1)
    assert handled == [signal.SIGUSR1]


def test_a_handler_runs_after_the_work_and_keeps_its_result_and_error(handled: list[int]) -> None:
    def work() -> int:
        send_to_self(signal.SIGUSR1)
        return len(handled)

    assert hold_signals(work) == 0
    assert handled == [signal.SIGUSR1]
    assert hold_signals(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        hold_signals(divmod, 7, 0)


def test_an_exception_of_a_handler_is_raised_after_the_work(handled: list[int]) -> None:
    done = []

    def work() -> None:
        send_to_self(signal.SIGUSR2)
        send_to_self(signal.SIGUSR1)
        done.append(True)

    with pytest.raises(HandlerError):
        hold_signals(work)
    assert done
    assert sorted(handled) == [signal.SIGUSR1, signal.SIGUSR2]


def test_a_handler_may_end_a_wait(handled: list[int]) -> None:
    def wait(timeout: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        select.select([], [], [], timeout)

    def work() -> str:
        try:
            let_signals_in(wait, LONG)
        except Interrupted as error:
            return "by a signal" if raised_by_signal(error) else "?"
        return "by time"

    with interruptible():
        assert hold_signals(work) == "by a signal"
        assert not raised_by_signal(Interrupted())


def test_a_signal_before_a_wait_ends_it(handled: list[int]) -> None:
    waited: list[float] = []

    def work() -> None:
        send_to_self(signal.SIGUSR2)
        let_signals_in(waited.append, 1.0)

    with pytest.raises(HandlerError):
        hold_signals(work)
    assert handled == [signal.SIGUSR2]
    assert not waited


def test_a_handler_that_does_not_raise_lets_the_wait_go_on(handled: list[int]) -> None:
    def wait(timeout: float) -> int:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        started = time.monotonic()
        select.select([], [], [], timeout)
        assert time.monotonic() - started >= timeout
        return len(handled)

    assert hold_signals(let_signals_in, wait, 0.5) == 1


def test_a_handler_that_is_set_during_a_wait_stays(handled: list[int]) -> None:
    def another(number: int, frame: FrameType | None) -> None:
        handled.append(-number)

    def work() -> None:
        let_signals_in(lambda _: signal.signal(signal.SIGUSR1, another), 0)

    hold_signals(work)
    assert signal.getsignal(signal.SIGUSR1) is another
    send_to_self(signal.SIGUSR1)
    assert handled == [-signal.SIGUSR1]


def test_nested_calls_hold_signals_as_well(handled: list[int]) -> None:
    def inner() -> int:
        send_to_self(signal.SIGUSR1)
        return len(handled)

    def wait(_: float) -> tuple[int, int]:
        return hold_signals(inner), len(handled)

    within, after = hold_signals(let_signals_in, wait, 0.0)
    assert within == 0
    assert handled == [signal.SIGUSR1]
    assert after <= 1


def test_in_other_threads_no_signals_are_held(handled: list[int]) -> None:
    found: list[object] = []

    def work() -> None:
        found.append(signal.getsignal(signal.SIGUSR1))
        found.append(let_signals_in(str, 3))

    own = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=hold_signals, args=(work,))
    thread.start()
    thread.join(LONG)
    assert found == [own, "3"]


def test_a_child_forked_meanwhile_has_the_handlers_of_the_application(handled: list[int]) -> None:
    own = signal.getsignal(signal.SIGUSR1)
    codes: list[int] = []

    def work() -> None:
        forking = threading.Thread(target=lambda: codes.append(child(own)))
        forking.start()
        forking.join(LONG)

    hold_signals(work)
    assert codes == [0]


def child(own: object) -> int:
    """What a forked child ends with: 0 if its handler is ``own``."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(0 if signal.getsignal(signal.SIGUSR1) is own else 1)


@pytest.mark.parametrize("work", [lambda: None, lambda: let_signals_in(time.sleep, 0)])
def test_an_interruption_at_any_moment_keeps_the_handlers(work: Callable[[], None]) -> None:
    with interruptible():
        before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)
        for number in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + number % 30))
                while True:
                    hold_signals(work)
            except Interrupted:
                pass
            after = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)
            assert after == before
