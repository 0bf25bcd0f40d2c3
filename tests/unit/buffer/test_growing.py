"""A batch that is ready goes on filling until the sender takes it (KIP-782)."""

from __future__ import annotations

from tests.unit.buffer.accumulating import BATCH, LEADER, Accumulating

MOST = 5 * BATCH - 1
"""Room for ten records of ``VALUE``."""


def growing(batches: int = 100) -> Accumulating:
    """Batches for node 1, which leads all partitions, may grow as far as they ever may."""
    rig = Accumulating(batches, batch_max_size=MOST)
    rig.broker(1).window.size = MOST
    look_at_queues(rig)
    return rig


def look_at_queues(rig: Accumulating) -> None:
    """Let the sender see every queue, by a batch that it sends."""
    for partition in range(3):
        rig.append(partition, b"")
        rig.clock.advance(10)
        for batch in rig.drain():
            batch.partition.take_out(batch)
            batch.release()


def sizes(rig: Accumulating) -> list[int]:
    return [batch.record_count for batch in rig.take_all()]


def test_growing_is_allowed_by_node() -> None:
    rig = Accumulating(100, batch_max_size=MOST)
    leaders = (1, 2, 1)

    def grown() -> dict[int, list[int]]:
        for _ in range(12):
            for partition in (0, 1):
                rig.append(partition)
        rig.look(leaders)
        counts: dict[int, list[int]] = {0: [], 1: []}
        for batch in rig.take_all():
            counts[batch.tp.partition].append(batch.record_count)
        return counts

    assert grown() == {0: [2] * 6, 1: [2] * 6}, "before anything was allowed"
    rig.broker(1).window.size = 2 * BATCH
    grown()  # the sender has looked at the queues only now
    assert grown() == {0: [4] * 3, 1: [2] * 6}
    rig.broker(1).window.size = 0
    grown()
    assert grown() == {0: [2] * 6, 1: [2] * 6}, "what is allowed may be taken back"


def test_only_the_record_that_fills_it_wakes_the_sender() -> None:
    rig = growing()
    appended = [rig.append() for _ in range(8)]
    assert [one.wake_sender for one in appended] == [False, True] + [False] * 6
    assert [one.batch_ready for one in appended] == [one.wake_sender for one in appended]
    assert rig.drain()[0].record_count == 8


def test_a_record_larger_than_a_batch_leaves_at_once_and_may_be_joined() -> None:
    rig = growing()
    appended = rig.append(value=bytes(2 * BATCH))
    assert appended.wake_sender
    assert rig.ready() == {1: [0]}
    rig.append(value=bytes(2 * BATCH))
    rig.append(value=bytes(2 * BATCH))  # with which it would be larger than it may be
    assert sizes(rig) == [2, 1]


def test_what_a_broker_finds_too_large_is_not_grown_to_again() -> None:
    rig = growing()
    for _ in range(10):
        rig.append()
    (batch,) = rig.drain()
    batch.attempt(rig.clock.now, LEADER)
    for half in rig.split(batch):
        rig.drain_each(1)
        half.release()
    for _ in range(12):
        rig.append()
        rig.append(partition=1)
    by_partition: dict[int, list[int]] = {0: [], 1: []}
    for queued in rig.take_all():
        by_partition[queued.tp.partition].append(queued.record_count)
    assert by_partition == {0: [4, 4, 4], 1: [10, 2]}
