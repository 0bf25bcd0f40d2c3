"""A batch ends once, and everyone who asked is told."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kprod.buffer.delivery import BatchDelivery
from kprod.errors import KprodTimeoutError
from kprod.latch import Latch
from tests.unit.buffer.deliveries import new_delivery, nobody

ERROR = KprodTimeoutError("too late")
RACES = 500
"""Attempts without a GIL, where two threads can meet between any two steps; they seldom do."""


@pytest.mark.parametrize("first", ["succeed", "fail"])
@pytest.mark.parametrize("second", ["succeed", "fail"])
def test_the_first_outcome_stands(delivery: BatchDelivery, first: str, second: str) -> None:
    told: list[None] = []
    delivery.on_done(lambda: told.append(None))
    settle: dict[str, Callable[[], bool]] = {
        "succeed": lambda: delivery.succeed(100, -1),
        "fail": lambda: delivery.fail(ERROR),
    }
    assert settle[first]()
    outcome = (delivery.base_offset, delivery.error)
    assert not settle[second]()
    assert (delivery.base_offset, delivery.error) == outcome
    assert len(told) == 1


def test_only_one_of_several_threads_settles_a_batch() -> None:
    for _ in range(50):
        delivery = new_delivery()
        told: list[None] = []
        delivery.on_done(partial(told.append, None))
        winners = race(delivery)
        assert winners == [delivery.base_offset]
        assert len(told) == 1


def race(delivery: BatchDelivery) -> list[int]:
    """Let three threads settle at once; those that were first."""
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


def failing(cut: Callable[[BatchDelivery], Callable[[], object]]) -> list[object]:
    """The errors that a record of the second half hears of, and each half's; ``cut`` comes before.

    What ``cut`` returns comes after.
    """
    delivery = new_delivery()
    told: list[object] = []
    delivery.on_done(lambda: told.append(delivery.locate(3)[0].error), 3)
    finish = cut(delivery)
    assert delivery.fail(ERROR)
    finish()
    assert delivery.done
    return [*told, *(delivery.locate(index)[0].error for index in (0, 3))]


def cut_before(delivery: BatchDelivery) -> Callable[[], object]:
    halves(delivery)
    return nobody


def cut_after(delivery: BatchDelivery) -> Callable[[], object]:
    return lambda: halves(delivery)


def cut_meanwhile(delivery: BatchDelivery) -> Callable[[], object]:
    start = threading.Barrier(2)
    thread = threading.Thread(target=lambda: (start.wait(), halves(delivery)))
    thread.start()
    start.wait()
    return thread.join


@pytest.mark.parametrize(
    ("cut", "times"), [(cut_before, 1), (cut_after, 1), (cut_meanwhile, RACES)]
)
def test_a_batch_that_is_split_while_it_fails_gets_the_error(
    cut: Callable[[BatchDelivery], Callable[[], object]], times: int
) -> None:
    """A closing thread disowns the batch that the sender cuts (``Sender.disown``)."""
    for _ in range(times):
        assert failing(cut) == [ERROR] * 3


def test_a_final_outcome_is_not_changed_by_errors_of_single_records(
    delivery: BatchDelivery,
) -> None:
    assert delivery.fail(ERROR)
    assert not delivery.fail_each([(0, KprodTimeoutError("another"))])
    assert delivery.locate(1) == (delivery, 1)
    assert delivery.error is ERROR


def test_a_part_is_observed_if_its_whole_is(delivery: BatchDelivery) -> None:
    first, second = halves(delivery)
    assert not first.is_heard()
    delivery.on_done(nobody)  # after the split
    assert first.is_heard()
    assert second.is_heard()


class OutcomeReader:
    """A latch whose opening reads the outcome, as a finalizer that runs then may do."""

    is_open = False

    def __init__(self, delivery: BatchDelivery) -> None:
        self._delivery = delivery

    def open(self) -> None:
        self._delivery.on_done(nobody)
        self.is_open = True


def test_a_latch_is_opened_without_the_lock(delivery: BatchDelivery) -> None:
    latch = OutcomeReader(delivery)
    delivery.latch(latch)
    delivery.succeed(1, -1)
    assert latch.is_open


class Ring:
    """Garbage that only the collector finds, with a finalizer."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._itself = self

    def __del__(self) -> None:
        self._act()


@pytest.mark.parametrize(
    ("ask", "keep"),
    [
        (lambda delivery: delivery.on_done(nobody), lambda: [[] for _ in range(200)]),
        (lambda delivery: delivery.latch(Latch()), lambda: [(n, n) for n in range(3000)]),
        (lambda delivery: delivery.join(None, None), lambda: [{} for _ in range(200)]),
    ],
)
def test_a_finalizer_may_call_the_delivery_again(
    delivery: BatchDelivery, ask: Any, keep: Any
) -> None:
    """Up to Python 3.11 it runs wherever something is allocated that the collector sees."""
    pairs, thresholds, ran = [(n, n) for n in range(10)], gc.get_threshold(), []

    def come_back() -> None:
        delivery.on_done(nobody)
        ran.append(True)

    gc.collect()
    gc.disable()
    try:
        kept = keep()  # none is left that could be used again
        del pairs  # but of these
        Ring(come_back)
        gc.set_threshold(1)
        gc.enable()
        ask(delivery)
        gc.collect()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert kept
    assert ran
