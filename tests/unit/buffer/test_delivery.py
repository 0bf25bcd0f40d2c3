"""A batch gets one outcome, runs every callback, and is freed."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kprod.buffer.delivery import BatchDelivery
from kprod.errors import ConnectionLost, KprodError, KprodTimeoutError
from kprod.latch import Latch
from kprod_ext.batch import ProducerBatch
from tests.unit.buffer.accumulating import Accumulating
from tests.unit.buffer.deliveries import new_delivery, no_op

ERROR = KprodTimeoutError("too late")
RACES = 500
"""Attempts: without a GIL two threads seldom meet at the critical step."""


@pytest.mark.parametrize("first", ["succeed", "fail"])
@pytest.mark.parametrize("second", ["succeed", "fail"])
def test_the_first_outcome_stands(delivery: BatchDelivery, first: str, second: str) -> None:
    calls: list[None] = []
    delivery.on_done(lambda: calls.append(None))
    settle: dict[str, Callable[[], bool]] = {
        "succeed": lambda: delivery.succeed(100, -1),
        "fail": lambda: delivery.fail(ERROR),
    }
    assert settle[first]()
    outcome = (delivery.base_offset, delivery.error)
    assert not settle[second]()
    assert (delivery.base_offset, delivery.error) == outcome
    assert len(calls) == 1


def test_only_one_of_several_threads_settles_a_batch() -> None:
    for _ in range(50):
        delivery = new_delivery()
        calls: list[None] = []
        delivery.on_done(partial(calls.append, None))
        winners = race(delivery)
        assert winners == [delivery.base_offset]
        assert len(calls) == 1


def race(delivery: BatchDelivery) -> list[int]:
    """Let three threads settle at once; those that succeeded."""
    start = threading.Barrier(3)

    def settle(number: int) -> bool:
        start.wait()
        return delivery.succeed(number, -1)

    with ThreadPoolExecutor(3) as pool:
        return [number for number, won in enumerate(pool.map(settle, range(3))) if won]


def halves(delivery: BatchDelivery) -> tuple[BatchDelivery, BatchDelivery]:
    """Records 0 to 2, and 3 to the end."""
    first, second = new_delivery(), new_delivery()
    delivery.split_into([(0, first), (3, second)])
    return first, second


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_split_batch_is_done_with_the_last_of_its_halves(
    delivery: BatchDelivery, order: tuple[int, int]
) -> None:
    parts = halves(delivery)
    parts[order[0]].succeed(10, -1)
    assert not delivery.done
    parts[order[1]].fail(ERROR)
    assert delivery.done


def failing(split: Callable[[BatchDelivery], Callable[[], object]]) -> list[object]:
    """Errors of a callback of the second half, and of both halves.

    ``split`` is called before the failure, and what it returns after that.
    """
    delivery = new_delivery()
    errors: list[object] = []
    delivery.on_done(lambda: errors.append(delivery.locate(3)[0].error), 3)
    finish = split(delivery)
    assert delivery.fail(ERROR)
    finish()
    assert delivery.done
    return [*errors, *(delivery.locate(index)[0].error for index in (0, 3))]


def split_before(delivery: BatchDelivery) -> Callable[[], object]:
    halves(delivery)
    return no_op


def split_after(delivery: BatchDelivery) -> Callable[[], object]:
    return lambda: halves(delivery)


def split_meanwhile(delivery: BatchDelivery) -> Callable[[], object]:
    start = threading.Barrier(2)
    thread = threading.Thread(target=lambda: (start.wait(), halves(delivery)))
    thread.start()
    start.wait()
    return thread.join


@pytest.mark.parametrize(
    ("split", "times"), [(split_before, 1), (split_after, 1), (split_meanwhile, RACES)]
)
def test_a_batch_that_is_split_while_it_fails_gets_the_error(
    split: Callable[[BatchDelivery], Callable[[], object]], times: int
) -> None:
    """A closing thread disowns the batch that the sender splits (``Sender.disown``)."""
    for _ in range(times):
        assert failing(split) == [ERROR] * 3


def test_a_final_outcome_is_not_changed_by_errors_of_records(delivery: BatchDelivery) -> None:
    assert delivery.fail(ERROR)
    assert not delivery.fail_each([(0, KprodTimeoutError("another"))])
    assert delivery.locate(1) == (delivery, 1)
    assert delivery.error is ERROR


def test_a_part_is_observed_if_its_whole_is(delivery: BatchDelivery) -> None:
    first, second = halves(delivery)
    assert not first.is_observed()
    delivery.on_done(no_op)  # after the split
    assert first.is_observed()
    assert second.is_observed()


class OutcomeReader:
    """A latch whose opening reads the outcome, as a finalizer that runs then may do."""

    is_open = False

    def __init__(self, delivery: BatchDelivery) -> None:
        self._delivery = delivery

    def open(self) -> None:
        self._delivery.on_done(no_op)
        self.is_open = True


def test_a_latch_is_opened_without_the_lock(delivery: BatchDelivery) -> None:
    latch = OutcomeReader(delivery)
    delivery.latch(latch)
    delivery.succeed(1, -1)
    assert latch.is_open


class Cycle:
    """Garbage that only the collector finds, with a finalizer."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._itself = self

    def __del__(self) -> None:
        self._act()


@pytest.mark.parametrize(
    ("ask", "keep"),
    [
        (lambda delivery: delivery.on_done(no_op), lambda: [[] for _ in range(200)]),
        (lambda delivery: delivery.latch(Latch()), lambda: [(n, n) for n in range(3000)]),
        (lambda delivery: delivery.join(None, None), lambda: [{} for _ in range(200)]),
    ],
)
def test_a_finalizer_may_use_the_delivery(delivery: BatchDelivery, ask: Any, keep: Any) -> None:
    """Up to Python 3.11 it runs at any allocation of a tracked object."""
    pairs, thresholds, ran = [(n, n) for n in range(10)], gc.get_threshold(), []

    def call_again() -> None:
        delivery.on_done(no_op)
        ran.append(True)

    gc.collect()
    gc.disable()
    try:
        kept = keep()  # so that no freed object can be reused
        del pairs  # except these
        Cycle(call_again)
        gc.set_threshold(1)
        gc.enable()
        ask(delivery)
        gc.collect()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert kept
    assert ran


class Witness:
    """Is freed with what refers to it."""


def drained() -> tuple[Accumulating, ProducerBatch]:
    rig = Accumulating()
    rig.append(0, bytes(2000))
    rig.ready()
    [batch] = rig.drain()
    return rig, batch


def test_the_collector_does_not_track_a_batch_without_errors() -> None:
    rig, batch = drained()
    parts = batch, batch.delivery, batch.buffer
    assert [gc.is_tracked(part) for part in parts] == [False] * 3
    batch.attempt(rig.clock.now, None)
    batch.delivery.succeed(0, -1)
    batch.delivery.on_done(no_op)
    assert [gc.is_tracked(part) for part in parts] == [False] * 3


def cycle_through_a_failed_attempt(witness: Witness) -> None:
    rig, batch = drained()
    try:
        raise ConnectionLost("gone")
    except ConnectionLost as error:
        batch.failed(error)  # its traceback has this frame, and so the batch
    batch.delivery.succeed(0, -1)  # the next attempt
    assert rig.accumulator.incomplete == {batch}


def cycle_through_errors(witness: Witness) -> None:
    batch, record = new_delivery(), new_delivery()
    try:
        raise KprodError("the end")
    except KprodError as error:
        batch.fail(error)
        record.fail_each([(0, error)])


def cycle_through_a_callback(witness: Witness) -> None:
    delivery = new_delivery()
    delivery.on_done(lambda: (witness, delivery))


def cycle_through_a_loop(witness: Witness) -> None:
    async def wait() -> None:
        next(delivery.wait_in_loop())

    delivery = new_delivery()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait())
    loop.close()
    loop.set_exception_handler(lambda *_: (witness, delivery))


def cycle_through_halves(witness: Witness) -> None:
    whole, first, second = (new_delivery() for _ in range(3))
    second.on_done(lambda: witness)
    whole.split_into([(0, first), (3, second)])


@pytest.mark.parametrize(
    "cycle",
    [
        cycle_through_a_failed_attempt,
        cycle_through_errors,
        cycle_through_a_callback,
        cycle_through_a_loop,
        cycle_through_halves,
    ],
)
def test_reference_cycles_are_collected(cycle: Callable[[Witness], None]) -> None:
    witness = Witness()
    gone = weakref.ref(witness)
    cycle(witness)
    del witness
    gc.collect()
    assert gone() is None
