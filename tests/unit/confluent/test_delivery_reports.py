"""Delivery reports of the confluent API: waiting threads, interruptions and closing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.errors import ProducerClosedError
from kprod.types import TopicPartition
from kprod_ext.confluent import DeliveryReports
from kprod_ext.futures import FutureRecordMetadata
from tests.support.interruption import interruptible, repeat_until_interrupted

LONG = 20.0
THREADS = 4


def new_reports() -> DeliveryReports:
    return DeliveryReports(False, lambda error: error)


def test_every_waiting_thread_is_woken() -> None:
    reports = new_reports()
    with ThreadPoolExecutor(THREADS) as pool:
        waits = [pool.submit(reports.wait, LONG) for _ in range(THREADS)]
        reports.call_soon(lambda: None)
        for wait in waits:
            wait.result(LONG / 2)


@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.05])
def test_a_wait_takes_as_long_as_asked(timeout: float) -> None:
    began = time.monotonic()
    waiter = threading.Thread(target=new_reports().wait, args=(timeout,), daemon=True)
    waiter.start()
    waiter.join(LONG)
    assert not waiter.is_alive()
    assert time.monotonic() - began >= timeout


def test_an_exception_at_any_moment_of_a_wait_leaves_it_usable() -> None:
    with interruptible():
        for number in range(300):
            reports = new_reports()
            repeat_until_interrupted(
                lambda it=reports: it.wait(1e-6),  # type: ignore[misc]
                0.0002 + number * 3e-7,
            )
            caller = threading.Thread(target=reports.call_soon, args=(lambda: None,), daemon=True)
            caller.start()
            caller.join(LONG)
            assert not caller.is_alive(), "an interrupted wait has left a lock held"
            assert reports.serve() == 1


def test_threads_can_add_records_of_different_batches() -> None:
    """Without a GIL, a thread could read the latest batch while another replaces it."""
    callbacks, reports = Callbacks(), new_reports()

    def add_and_end(batches: int) -> int:
        served = 0
        for _ in range(batches):
            outcome = BatchDelivery(TopicPartition("t", 0), lambda: None, callbacks)
            added_to(reports, outcome, records=2)
            outcome.succeed(0, -1)
            served += reports.serve()
        return served

    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(add_and_end, 10_000) for _ in range(THREADS)]
        served = sum(call.result(LONG) for call in calls)
    assert (served + reports.serve(), reports.waiting) == (2 * 10_000 * THREADS, 0)


class HeldCallbacks:
    """Callbacks on hold, as while the sender completes the last batches."""

    def __init__(self) -> None:
        self.callbacks = Callbacks("reports")
        self.callbacks.start()
        assert self.callbacks.hold_up()

    def outcome(self) -> BatchDelivery:
        return BatchDelivery(TopicPartition("t", 0), lambda: None, self.callbacks)

    def go_on(self) -> None:
        self.callbacks.go_on()
        assert self.callbacks.drain(LONG)
        self.callbacks.stop()


def added_to(reports: DeliveryReports, outcome: BatchDelivery, records: int = 1) -> list[Any]:
    """Add ``records`` records; the list gets an error for each report."""
    errors: list[Any] = []
    for index in range(records):
        future = FutureRecordMetadata(outcome, index, 1000, 3, 5, -1)
        reports.add(future, lambda error, _: errors.append(error), b"key", b"value", None, 0.0)
    return errors


def test_closing_serves_the_last_reports_without_waiting_for_callbacks() -> None:
    held, reports, closed = HeldCallbacks(), new_reports(), ProducerClosedError("closed")
    outcome = held.outcome()
    errors = added_to(reports, outcome)
    outcome.fail(closed)
    assert reports.serve() == 0, "the callback is on hold"
    assert reports.end() is None
    held.go_on()
    assert reports.serve() == 0
    assert (errors, reports.waiting) == ([closed], 0)


def test_a_batch_without_an_outcome_is_not_reported_at_the_end() -> None:
    held, reports = HeldCallbacks(), new_reports()
    errors = added_to(reports, held.outcome())
    assert reports.end() is None
    assert (errors, reports.waiting) == ([], 1)
    held.go_on()


def test_a_split_batch_is_reported_once_all_its_parts_are_complete() -> None:
    held, reports, closed = HeldCallbacks(), new_reports(), ProducerClosedError("closed")
    whole, first, second = held.outcome(), held.outcome(), held.outcome()
    errors = added_to(reports, whole, records=3)
    whole.split_into([(0, first), (2, second)])
    first.succeed(7, -1)
    assert reports.end() is None
    second.fail(closed)
    assert reports.end() is None
    assert errors == [None, None, closed]
    held.go_on()
