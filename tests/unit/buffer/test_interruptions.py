"""A signal handler may raise at any moment of an append: the record is queued, or it is not."""

from __future__ import annotations

from functools import partial

import pytest

from kprod_ext.batch import ProducerBatch
from tests.support.interruption import interruptible, repeat_until_interrupted
from tests.support.tier import one_of
from tests.unit.buffer.accumulating import BATCH, Accumulating, read

MANY = 1000


@pytest.mark.parametrize("size", one_of(10, BATCH // 2, BATCH))
def test_an_interrupted_append_leaves_memory_and_queue_in_order(size: int) -> None:
    value = b"%04d" % size * (size // 4)
    with interruptible():
        for number in range(600):
            rig = Accumulating(batches=MANY)
            repeat_until_interrupted(partial(rig.append, value=value), 0.0002 + number * 2e-7)
            check(rig, value)


def check(rig: Accumulating, value: bytes) -> None:
    """Whatever is queued is whole, is known to flush, and is all that takes memory."""
    waiting = set(rig.accumulator.incomplete.copy())
    rig.accumulator.begin_flush()
    seen: list[ProducerBatch] = []
    while batches := rig.drain():
        seen += batches
    assert set(seen) == waiting, "flush would not wait for a batch, or for ever"
    for batch in seen:
        assert {record.value for record in read(batch).records()} == {value}
        batch.release()
    assert rig.used == 0
