"""A rest ends when it is rung, when its time has come, or when nobody works."""

from __future__ import annotations

import os
import threading
import time

import pytest

from kprod_ext import Rest

LONG = 20.0


def in_background(rest: Rest, patience: float, ended: list[bool]) -> threading.Thread:
    thread = threading.Thread(target=lambda: ended.append(rest.rest(patience)))
    thread.start()
    return thread


def test_it_ends_when_nobody_works() -> None:
    assert not Rest().rest(0.003)
    assert not Rest().rest(0)


def test_ringing_ends_it() -> None:
    rest, ended = Rest(), list[bool]()
    thread = in_background(rest, LONG, ended)
    rest.ring()
    thread.join(LONG)
    assert ended == [True]


def test_ringing_ends_the_next_one_and_no_other() -> None:
    rest = Rest()
    rest.ring()
    rest.ring()
    assert rest.rest(LONG)
    assert not rest.rest(0.002)


def test_no_ringing_is_lost_to_who_puts_the_alarm_off() -> None:
    rest, ended = Rest(), threading.Semaphore(0)
    times = 2000

    def rest_often() -> None:
        for _ in range(times):
            rest.rest(LONG)
            ended.release()

    thread = threading.Thread(target=rest_often)
    thread.start()
    for number in range(times):
        rest.look_within(LONG / 2)
        rest.work_begins()
        rest.work_ends()
        rest.ring()
        rest.look_within(LONG / 2 - number / times)
        assert ended.acquire(timeout=LONG / 4)
    thread.join(LONG)


def test_it_ends_when_it_is_time_to_look() -> None:
    rest = Rest()
    rest.look_within(0.01)
    rest.look_within(LONG)
    started = time.monotonic()
    assert not rest.rest(LONG)
    assert time.monotonic() - started < LONG
    assert not rest.rest(0.002)  # the time is set for one rest


def test_who_sends_has_time_to_begin_to_wait() -> None:
    """A caller that is about to take the work itself is not got up for."""
    for _ in range(50):
        rest, ended = Rest(), list[float]()

        def until_it_ends(rest: Rest = rest, ended: list[float] = ended) -> None:
            rest.rest(LONG)
            ended.append(time.monotonic())

        thread = threading.Thread(target=until_it_ends)
        thread.start()
        time.sleep(0.002)
        sent = time.monotonic()
        rest.look_within(0)
        thread.join(LONG)
        assert ended[0] - sent >= 0.0005


def test_it_goes_on_while_somebody_works() -> None:
    rest, ended = Rest(), list[bool]()
    rest.look_within(0)
    rest.work_begins()
    thread = in_background(rest, 0.002, ended)
    thread.join(0.05)
    assert thread.is_alive()
    rest.work_ends()
    thread.join(LONG)
    assert ended == [False]


# The end ----------------------------------------------------------------------------------------


def test_abandoned_it_is_closed() -> None:
    rest = Rest()
    rest.abandon()
    rest.abandon()
    rest.ring()
    with pytest.raises(ValueError, match="closed"):
        rest.rest(1.0)


def test_closed_it_takes_what_it_is_told_and_nobody_in() -> None:
    rest = Rest()
    rest.close()
    rest.close()
    rest.ring()
    rest.look_within(0)
    with pytest.raises(ValueError, match="closed"):
        rest.rest(0)


def test_what_the_system_lent_is_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    rests = [Rest() for _ in range(10)]
    rests.pop().close()
    rests.clear()
    assert len(os.listdir("/proc/self/fd")) == before
