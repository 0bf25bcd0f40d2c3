"""Waiting for delivery reports: what an interrupted wait leaves."""

from __future__ import annotations

import threading

import pytest

from kprod_ext.confluent import DeliveryReports
from tests.support.interruption import interruptible, repeat_until_interrupted

LONG = 20.0


def new_reports() -> DeliveryReports:
    return DeliveryReports(False, lambda error: error)


def test_a_wait_ends_when_something_is_ready() -> None:
    reports = new_reports()
    served: list[int] = []

    def wait_and_serve() -> None:
        reports.wait(LONG)
        served.append(reports.serve())

    waiter = threading.Thread(target=wait_and_serve)
    waiter.start()
    reports.call_soon(lambda: None)
    waiter.join(LONG)
    assert served == [1]


def test_every_waiting_thread_is_woken() -> None:
    reports = new_reports()
    waiters = [threading.Thread(target=reports.wait, args=(LONG,)) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    reports.call_soon(lambda: None)
    for waiter in waiters:
        waiter.join(LONG)
    assert not any(waiter.is_alive() for waiter in waiters)


@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.001])
def test_a_wait_takes_no_longer_than_asked(timeout: float) -> None:
    new_reports().wait(timeout)


@pytest.mark.threads
def test_an_exception_at_any_moment_of_a_wait_leaves_it_usable() -> None:
    with interruptible():
        for number in range(300):
            reports = new_reports()
            repeat_until_interrupted(
                lambda it=reports: it.wait(1e-6),  # type: ignore[misc]
                0.0002 + number * 3e-7,
            )
            teller = threading.Thread(target=reports.call_soon, args=(lambda: None,), daemon=True)
            teller.start()
            teller.join(LONG)
            assert not teller.is_alive(), "an interrupted wait has left a lock held"
            assert reports.serve() == 1
