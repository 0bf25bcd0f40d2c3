"""When a batch may leave: full, lingered, flushed, closed, out of memory, awaited, backed off."""

from __future__ import annotations

import threading

import pytest

from kprod.errors import BrokerError, BufferFullError, ConnectionLost, KprodError
from kprod_ext.batch import ProducerBatch
from tests.unit.buffer.accumulating import LEADER, Accumulating

LONG = 20.0


@pytest.fixture
def rig() -> Accumulating:
    return Accumulating()


def test_everything_is_ready_while_somebody_waits_for_memory() -> None:
    rig = Accumulating(batches=1)
    rig.append()

    def wait_for_memory() -> None:
        with pytest.raises(BufferFullError):
            rig.append(1, timeout=0.2)

    waiting = threading.Thread(target=wait_for_memory)
    waiting.start()
    while not rig.pool.waiting:
        threading.Event().wait(0.001)
    assert rig.ready() == {1: [0]}
    waiting.join(LONG)
    assert len(rig.wakes) == 1, "the sender may have slept until the linger ends"
    (batch,) = rig.drain()
    batch.release()
    rig.append()
    assert rig.ready() == {}


# After a failed attempt ---------------------------------------------------------------------------


def failed(rig: Accumulating, attempts: int = 1, error: KprodError | None = None) -> ProducerBatch:
    """A batch that failed so often, the last time just now and with ``error``."""
    rig.append(0, bytes(2000))
    (batch,) = rig.drain()
    for _ in range(attempts):
        batch.attempt(rig.clock.now, LEADER)
    if error is not None:
        batch.failed(error)
    batch.partition.put_back(batch, rig.clock.now)
    return batch


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 8)])
def test_a_batch_that_failed_backs_off_longer_and_longer(
    rig: Accumulating, attempts: int, seconds: float
) -> None:
    failed(rig, attempts)
    assert rig.ready() == {}
    assert rig.next_check() == seconds
    rig.clock.advance(seconds)
    assert rig.ready() == {1: [0]}


@pytest.mark.parametrize(
    ("error", "ready"), [(ConnectionLost("gone"), {1: [0]}), (BrokerError(7), {})]
)
def test_a_batch_that_lost_its_connection_waits_for_the_next_one_only(
    rig: Accumulating, error: KprodError, ready: dict[int, list[int]]
) -> None:
    failed(rig, 5, error)
    assert rig.ready() == ready
