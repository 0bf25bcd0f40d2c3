"""Callbacks run in order in a thread of their own."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kprod.buffer.callbacks import Callbacks
from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.delivery import BulkDelivery
from kprod.errors import IllegalStateError
from kprod.types import RecordMetadata
from kprod_ext import SentRecords
from tests.unit.buffer.deliveries import future_of, new_delivery, no_op

LONG = 20.0
NAME = "callbacks under test"


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    callbacks = Callbacks(NAME, most_waiting=10)
    yield callbacks
    callbacks.stop()
    assert callbacks.drain(LONG)


def block(callbacks: Callbacks) -> threading.Event:
    """Put a callback that does not return before the event is set."""
    release = threading.Event()
    callbacks.put([lambda: release.wait(LONG)])
    return release


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_drain_does_not_wait_for_callbacks_put_later(callbacks: Callbacks) -> None:
    enough = threading.Event()

    def again() -> None:
        if not enough.is_set():
            callbacks.put([again])

    callbacks.put([again])
    assert callbacks.drain(LONG)
    enough.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_in_a_callback_does_not_stop_the_next(
    callbacks: Callbacks, kind: type[BaseException]
) -> None:
    def fail() -> None:
        raise kind

    ran: list[None] = []
    callbacks.put([fail, lambda: ran.append(None)])
    assert callbacks.drain(LONG)
    assert ran == [None]


def test_finished_callbacks_are_freed(callbacks: Callbacks) -> None:
    class Anything:
        pass

    anything = Anything()
    gone = weakref.ref(anything)
    callbacks.put([lambda kept=anything: None])  # type: ignore[misc]
    del anything
    assert callbacks.drain(LONG)
    gc.collect()
    assert gone() is None


def test_the_queue_is_crowded_until_half_of_it_has_run(callbacks: Callbacks) -> None:
    release = block(callbacks)
    callbacks.put([lambda: None] * 9)
    assert not callbacks.crowded
    assert callbacks.await_room(0)
    callbacks.put([lambda: None])
    assert callbacks.crowded
    assert not callbacks.await_room(0.01)
    release.set()
    assert callbacks.await_room(LONG)
    assert callbacks.drain(LONG)
    assert not callbacks.crowded


def test_the_queue_is_not_crowded_once_all_have_run() -> None:
    """The thread may run them all at once."""
    callbacks = Callbacks(NAME, most_waiting=2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5_000):
            callbacks.put([no_op] * 3)
            assert callbacks.drain(LONG)
            assert callbacks.await_room(LONG)
    finally:
        sys.setswitchinterval(interval)
        callbacks.stop()
    assert callbacks.drain(LONG)


def test_await_room_does_not_block_in_a_callback(callbacks: Callbacks) -> None:
    seen: list[bool] = []
    callbacks.put([lambda: seen.append(callbacks.await_room(LONG)), *[lambda: None] * 20])
    assert callbacks.drain(LONG)
    assert seen == [True]


def test_stop_ends_waits_for_room(callbacks: Callbacks) -> None:
    release = block(callbacks)
    callbacks.put([lambda: None] * 20)
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(callbacks.await_room(LONG)))
    waiter.start()
    callbacks.stop()
    waiter.join(LONG)
    assert results == [True]
    release.set()


def test_no_thread_is_left_once_all_have_run() -> None:
    """It may still be ending when ``drain`` returns."""
    left: list[str] = []
    for number in range(300):
        callbacks = Callbacks(f"{NAME}, {number}")
        callbacks.put([lambda: None])
        callbacks.stop()
        assert callbacks.drain(LONG)
        left += [name for name in names() if name == f"{NAME}, {number}"]
    assert left == []


def test_a_callback_put_after_stop_runs_at_once(callbacks: Callbacks) -> None:
    callbacks.put([lambda: None])
    callbacks.stop()
    ran: list[str] = []
    callbacks.put([lambda: ran.append(threading.current_thread().name)])
    assert ran == [threading.current_thread().name]


def test_abandon_starts_no_further_callback(callbacks: Callbacks) -> None:
    release = block(callbacks)
    ran: list[int] = []
    callbacks.put([partial(ran.append, 1)])
    callbacks.abandon()
    release.set()
    assert callbacks.drain(LONG)
    assert ran == []


@pytest.fixture
def delivery(callbacks: Callbacks) -> BatchDelivery:
    return new_delivery(callbacks)


def test_callbacks_run_in_order_of_records(callbacks: Callbacks, delivery: BatchDelivery) -> None:
    results: list[RecordMetadata] = []
    for index in (3, 1, 0, 2):
        future_of(delivery, index).add_callback(results.append)
    delivery.succeed(0, -1)
    future_of(delivery, 1).add_callback(results.append)
    assert callbacks.drain(LONG)
    assert [metadata.offset for metadata in results] == [0, 1, 2, 3, 1]


def test_without_a_thread_each_callback_runs_exactly_once() -> None:
    calls: list[str] = []

    def fail() -> None:
        calls.append("failing")
        raise MemoryError

    delivery = new_delivery(Callbacks())
    delivery.on_done(lambda: calls.append("first"))
    delivery.on_done(fail)
    delivery.on_done(lambda: calls.append("last"))
    with pytest.raises(MemoryError):
        delivery.succeed(7, -1)
    delivery.fail(IllegalStateError("the sender ended"))
    assert calls == ["first", "failing", "last"]


def waiting_calls(delivery: BatchDelivery) -> list[Callable[[], object]]:
    """Every way to wait for the outcome of a record or of several."""
    future, sent = future_of(delivery, 0), SentRecords()
    sent.add(delivery, 0)

    async def outcome() -> RecordMetadata:
        return await future

    return [
        future.get,
        partial(future.get, LONG),
        partial(BulkDelivery(sent).get, LONG),
        lambda: asyncio.run(outcome()),
    ]


def test_a_callback_cannot_wait_for_outcomes(callbacks: Callbacks, delivery: BatchDelivery) -> None:
    refused: list[str] = []

    def run(wait: Callable[[], object]) -> None:
        with pytest.raises(IllegalStateError) as raised:
            wait()
        refused.append(str(raised.value))

    callbacks.put([partial(run, wait) for wait in waiting_calls(delivery)])
    assert callbacks.drain(LONG)
    assert len(refused) == 4
    assert all("add a callback to that record's future instead" in message for message in refused)
