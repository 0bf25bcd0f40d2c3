"""A batch the broker finds too large goes on as two, in its place and with its records."""

from __future__ import annotations

import pytest

from kprod.buffer.compression import compressor
from kprod.errors import KprodError, ProducerClosedError
from kprod_ext.batch import ProducerBatch
from tests.unit.buffer.accumulating import BATCH, LEADER, Accumulating, read


def sent(rig: Accumulating, records: int) -> ProducerBatch:
    """A batch of small numbered records that is under way."""
    for number in range(records):
        rig.append(value=b"%d" % number)
    rig.accumulator.begin_flush()
    (batch,) = rig.drain()
    rig.accumulator.end_flush()
    batch.attempt(rig.clock.now, LEADER)
    return batch


def values(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in read(batch).records()]


@pytest.fixture(params=["none", "gzip", "snappy", "lz4", "zstd"])
def rig(request: pytest.FixtureRequest) -> Accumulating:
    compress = compressor(request.param, None)
    return Accumulating(batches=100, compression=request.param, compress=compress)


def test_what_is_known_of_the_whole_holds_for_the_halves(rig: Accumulating) -> None:
    """An overtaken batch begins the log of a topic made anew: see ``Partition.acknowledged``."""
    batch = sent(rig, 4)
    batch.maybe_written = batch.overtaken = True
    for half in rig.split(batch):
        assert half.maybe_written
        assert half.overtaken


def test_nothing_is_expected_of_compression_after_a_batch_that_was_too_large() -> None:
    """As Kafka does: batches are filled by their uncompressed size again, and learn anew."""
    rig = Accumulating(batches=100, compression="gzip", compress=compressor("gzip", None))
    for _ in range(100):  # so easy to compress that more and more goes into a batch
        rig.append(value=bytes(BATCH // 4))
        rig.drain()
    fewer = records_of_a_batch(rig)
    rig.split(sent(rig, 2))
    assert records_of_a_batch(rig) < fewer


def records_of_a_batch(rig: Accumulating) -> int:
    """How many records go into a batch until another one is begun."""
    count = 0
    while not rig.append(value=bytes(BATCH // 40)).wake_sender or not count:
        count += 1
    rig.accumulator.begin_flush()
    while rig.drain():
        pass
    rig.accumulator.end_flush()
    return count


@pytest.mark.parametrize("count", [2, 3, 5, 9, 100])
def test_a_batch_is_cut_into_as_many_parts_as_asked_for(rig: Accumulating, count: int) -> None:
    futures = [rig.append(value=b"%d" % number).future for number in range(9)]
    rig.accumulator.begin_flush()
    rig.number_from(0x7FFF_FFFE)
    (batch,) = rig.drain()
    parts = rig.cut(batch, count)
    assert len(parts) == min(count, 9)
    counts = [part.record_count for part in parts]
    assert max(counts) - min(counts) <= 1
    found: list[bytes | None] = []
    for part in parts:
        assert rig.drain_each(1) == [part]
        number = (0x7FFF_FFFE + len(found)) & 0x7FFF_FFFF
        sealed = read(part)
        state = (sealed.producer_id, sealed.producer_epoch, sealed.base_sequence)
        assert (*state, part.base_sequence) == (7, 1, number, number)
        part.delivery.succeed(1000 + len(found), -1)
        found += values(part)
    assert found == [b"%d" % number for number in range(9)]
    assert [future.get(0).offset for future in futures] == list(range(1000, 1009))


def test_a_record_larger_than_a_part_is_alone_in_one() -> None:
    rig = Accumulating(batches=100, batch_size=50_000)
    for size in (10, 10_000, 10, 10):
        rig.append(value=bytes(size))
    rig.accumulator.begin_flush()
    (batch,) = rig.drain()
    parts = rig.cut(batch, 4)
    assert [part.record_count for part in parts] == [2, 2]


@pytest.mark.parametrize("size", [63, 64, 8191, 8192])
def test_records_of_every_shape_are_taken_over(size: int) -> None:
    rig = Accumulating(batches=100, batch_size=50_000)
    headers = (("größe", bytes(size)), ("null", None), ("empty", b""), ("", b"no name"))
    shapes = [
        (b"k", bytes(size), headers),
        (None, None, ()),
        (b"", b"", ()),
        (bytes(size), None, ()),
    ]
    timestamps = [10**12, 0, 2**62, 10**12]
    tp = rig.append(value=b"first").future.topic_partition
    for timestamp, (key, value, their_headers) in zip(timestamps, shapes, strict=True):
        rig.accumulator.append(tp, timestamp, key, value, their_headers, 0)
    rig.accumulator.begin_flush()
    (batch,) = rig.drain()
    expected = [(r.timestamp, r.key, r.value, r.headers) for r in read(batch).records()]
    rig.split(batch)
    found = [record for half in rig.drain_each(2) for record in read(half).records()]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == expected


@pytest.mark.parametrize("ended_before", [True, False], ids=["before the split", "after it"])
def test_an_outcome_that_a_closing_thread_has_set_stays(ended_before: bool) -> None:
    """The sender was splitting the batch when the thread's time was up (``Sender.disown``)."""
    rig = Accumulating(batches=100)
    futures = [rig.append(value=b"%d" % number).future for number in range(4)]
    told: list[BaseException] = []
    futures[3].add_errback(told.append)
    rig.accumulator.begin_flush()
    (batch,) = rig.drain()
    closed = ProducerClosedError("closed")
    if not ended_before:
        rig.split(batch)
    assert batch.delivery.fail(closed)
    assert not batch.delivery.fail(closed)
    if ended_before:
        rig.split(batch)
    for part in rig.take_all():
        assert not part.delivery.fail(KprodError("the sender goes on"))
    assert [str(future.exception) for future in futures] == ["closed"] * 4
    assert list(map(str, told)) == ["closed"]
