"""Batches and the garbage collector: untracked without errors, and cycles are found."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from kprod.buffer.delivery import BatchDelivery
from kprod.errors import ConnectionLost, KprodError
from kprod.types import TopicPartition
from kprod_ext.batch import ProducerBatch
from tests.unit.buffer.accumulating import Accumulating

TP = TopicPartition("t", 0)


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
    batch.delivery.on_done(lambda: None)
    assert [gc.is_tracked(part) for part in parts] == [False] * 3


def cycle_through_a_failed_attempt(witness: Witness) -> None:
    rig, batch = drained()
    try:
        raise ConnectionLost("gone")
    except ConnectionLost as error:
        batch.failed(error)  # its traceback has this frame, and so the batch
    batch.delivery.succeed(0, -1)  # the next attempt
    assert rig.accumulator.incomplete == {batch}


def cycle_through_the_error(witness: Witness) -> None:
    delivery = BatchDelivery(TP, lambda: None)
    try:
        raise KprodError("the end")
    except KprodError as error:
        delivery.fail(error)


def cycle_through_errors_of_records(witness: Witness) -> None:
    delivery = BatchDelivery(TP, lambda: None)
    try:
        raise KprodError("the end")
    except KprodError as error:
        delivery.fail_each([(0, error)])


def cycle_through_a_callback(witness: Witness) -> None:
    delivery = BatchDelivery(TP, lambda: None)
    delivery.on_done(lambda: (witness, delivery))


def cycle_through_a_loop(witness: Witness) -> None:
    async def wait() -> None:
        next(delivery.wait_in_loop())

    delivery = BatchDelivery(TP, lambda: None)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait())
    loop.close()
    loop.set_exception_handler(lambda *_: (witness, delivery))


def cycle_through_halves(witness: Witness) -> None:
    whole, first, second = (BatchDelivery(TP, lambda: None) for _ in range(3))
    second.on_done(lambda: witness)
    whole.split_into([(0, first), (3, second)])


@pytest.mark.parametrize(
    "cycle",
    [
        cycle_through_a_failed_attempt,
        cycle_through_the_error,
        cycle_through_errors_of_records,
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
