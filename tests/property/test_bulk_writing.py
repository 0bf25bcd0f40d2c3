"""A bulk call appends as a loop does, even if its lists change meanwhile."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.buffer.compiled_topics import CompiledTopics
from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.rows import BLOCK_ROWS, RowChecks, Rows, send_rows
from kprod.bulk.writing import BulkParts, BulkWriting
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.snapshot import ClusterSnapshot, TopicInfo
from kprod.errors import BufferFullError, KprodTimeoutError, SerializationError
from kprod.intake.partitioner import DefaultPartitioner
from kprod.types import TopicPartition
from kprod_ext import ObjectChunk, RecordClock, TopicAppenders
from tests.unit.buffer.accumulating import BATCH, Accumulating, cluster, read

PARTITIONS = 3
TIME = 1_700_000_000_000


def nothing() -> None:
    """The default wake-up."""


class Known(Metadata):
    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot

    def subscribe(self, listener: MetadataListener) -> None:
        pass

    def await_topic(self, name: str, *_: object) -> TopicInfo:
        topic = self.snapshot.topic(name)
        assert topic is not None
        return topic


@dataclass
class Sending:
    """An accumulator and a partitioner with this seed."""

    seed: int
    memory: int = 1000
    leaders: tuple[int, ...] = (1, 1, 1)
    batch_size: int = BATCH
    wake: Callable[[], None] = nothing
    around: Accumulating = field(init=False)

    def __post_init__(self) -> None:
        self.around = Accumulating(
            self.memory,
            batch_size=self.batch_size,
            wake=self.wake,
            record_clock=RecordClock(lambda: TIME),
            batch_max_size=4 * self.batch_size,
        )
        self.partitioner = DefaultPartitioner(self.batch_size, random.Random(self.seed))
        self.cluster = cluster(leaders=self.leaders)
        self.topic = self.cluster.topics["t"]

    def loop(self, values: list[bytes], timestamp_ms: int | None = TIME) -> None:
        for value in values:
            partition = self.partitioner.choose(self.topic, None)
            appended = self.around.accumulator.append(
                TopicPartition("t", partition), timestamp_ms, None, value, (), 0
            )
            self.partitioner.appended(self.topic, partition, appended.nbytes, appended.batch_ready)

    def let_grow(self) -> None:
        """Let batches that begin from now on grow to four times their size."""
        self.around.broker(1).window.size = 4 * self.batch_size
        self.around.partitions.check(self.cluster, self.around.clock.now)

    def parts(self, metadata: Metadata | None = None) -> BulkParts:
        accumulator, known = self.around.accumulator, metadata or Known(self.cluster)
        return BulkParts(
            accumulator=accumulator,
            compiled_topics=CompiledTopics(
                TopicAppenders(), accumulator, known, largest=BATCH * 100
            ),
            metadata=known,
            partitioner=self.partitioner,
            wake=self.wake,
            blocking_time=lambda: 0.0,
            largest=BATCH * 100,
        )

    def writing(self, metadata: Metadata | None = None) -> BulkWriting:
        return BulkWriting(self.parts(metadata), "t")

    def queued(self) -> list[tuple[int, list[bytes | None]]]:
        batches = self.around.take_all()
        for batch in batches:
            batch.close()
        return [
            (batch.tp.partition, [record.value for record in read(batch).records()])
            for batch in batches
        ]


def load(
    values: Sequence[bytes | None],
    timestamp_ms: int | list[int | None] | None = TIME,
    partitions: list[int] | int | None = None,
) -> ObjectChunk:
    chunk = ObjectChunk(len(values), BATCH * 100, RowChecks("t", lambda *_: None))
    chunk.load(list(values), None, None, partitions, timestamp_ms)
    return chunk


def by_partition(queued: list[tuple[int, list[bytes | None]]]) -> list[list[list[bytes | None]]]:
    return [[values for partition, values in queued if partition == p] for p in range(PARTITIONS)]


def sizes(most: int = 880) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(8, most), min_size=1, max_size=120)


def values_of(lengths: list[int]) -> list[bytes]:
    return [number.to_bytes(8, "big") * (size // 8) for number, size in enumerate(lengths)]


@given(
    lengths=sizes() | sizes(60),
    cut=st.integers(0, 120),
    seed=st.integers(0, 9),
    timestamp_ms=st.sampled_from([TIME, None]),
)
def test_a_bulk_call_gives_the_partitions_and_batches_of_a_loop(
    lengths: list[int], cut: int, seed: int, timestamp_ms: int | None
) -> None:
    values = values_of(lengths)
    one_by_one, together = Sending(seed), Sending(seed)
    writing = together.writing()
    for part in (values[:cut], values[cut:]):
        one_by_one.loop(part, timestamp_ms)
        if part:
            writing.write(load(part, timestamp_ms))
        one_by_one.let_grow()
        together.let_grow()
    writing.finish()
    assert by_partition(together.queued()) == by_partition(one_by_one.queued())


@given(lengths=sizes(400), memory=st.integers(1, 30), seed=st.integers(0, 9))
def test_records_before_the_end_of_memory_are_queued(
    lengths: list[int], memory: int, seed: int
) -> None:
    values = values_of(lengths)
    sending = Sending(seed, memory)
    writing = sending.writing()
    try:
        writing.write(load(values))
    except BufferFullError:
        assert sending.around.pool.available < BATCH
    writing.finish()
    sent = writing.sent.count
    delivery = BulkDelivery(writing.sent)
    assert [delivery.outcome(number) for number in range(sent)] == [None] * sent
    queued = [value for _, batch in sending.queued() for value in batch]
    assert sorted(filter(None, queued)) == sorted(values[:sent])


def test_waiting_for_a_partition_holds_no_memory() -> None:
    sending = Sending(1)
    used: list[int] = []

    class Partial(Known):
        def await_topic(self, name: str, *others: object) -> TopicInfo:
            if 7 not in others:
                return super().await_topic(name)
            used.append(sending.around.used)
            raise KprodTimeoutError("there is no such partition")

    writing = sending.writing(Partial(sending.cluster))
    with pytest.raises(KprodTimeoutError):
        writing.write(load([bytes(400)] * 12, partitions=[0] * 5 + [7] * 7))
    assert used == [3 * BATCH] == [len(sending.queued()) * BATCH]


def test_an_interrupted_call_keeps_no_memory() -> None:
    """Also while the exception's traceback keeps the call's objects alive."""
    for interrupted in range(1, 20):
        left = iter(range(interrupted))

        def wake(left: Iterator[int] = left, last: int = interrupted - 1) -> None:
            if next(left, None) == last:
                raise KeyboardInterrupt

        sending = Sending(1, wake=wake)
        writing = sending.writing()
        try:
            writing.write(load([bytes(400)] * 7 + [bytes(2000)] + [bytes(400)] * 12))
        except KeyboardInterrupt:
            writing.finish()
        for batch in sending.around.take_all():
            batch.release()
        assert sending.around.used == 0


Row = tuple[bytes | None, bytes | None]


def queued_rows(sending: Sending) -> list[Row]:
    batches = sending.around.take_all()
    for batch in batches:
        batch.close()
    return [(record.key, record.value) for batch in batches for record in read(batch).records()]


def send(
    values: list[Any],
    keys: list[Any] | None = None,
    wake: Callable[[], None] = lambda: None,
    memory: int = 1000,
) -> tuple[BulkDelivery, list[Row]]:
    sending = Sending(1, leaders=(1,), memory=memory, wake=wake)
    parts = sending.parts()
    checks = RowChecks("t", lambda *_: None)
    delivery = send_rows(parts, "t", Rows(values, keys=keys), checks)
    return delivery, queued_rows(sending)


def test_values_stay_alive_until_they_are_copied() -> None:
    values = [bytes([n]) * 50 for n in range(200)]
    expected: list[Row] = [(None, bytes([n]) * 50) for n in range(200)]
    chunk = load(values[:], None)
    values.clear()
    gc.collect()
    sending = Sending(1, leaders=(1,))
    writing = sending.writing()
    writing.write(chunk)
    writing.finish()
    assert queued_rows(sending) == expected


def test_values_appended_during_the_call_are_not_sent() -> None:
    values = [bytes(400)] * 40
    delivery, rows = send(values, wake=lambda: values.append(b"later"))
    assert len(values) > 40
    assert (len(delivery), rows) == (40, [(None, bytes(400))] * 40)


def test_a_list_emptied_during_the_call_ends_the_call() -> None:
    values: list[Any] = [b""] * (BLOCK_ROWS + 5)
    delivery, rows = send(values, wake=values.clear)
    assert (len(delivery), len(rows)) == (BLOCK_ROWS, BLOCK_ROWS)


def test_values_changed_during_the_call_are_checked() -> None:
    values: list[Any] = [b""] * (BLOCK_ROWS + 5)

    def change() -> None:
        values[BLOCK_ROWS + 1 :] = [bytearray(b"copied"), b"y", "text", b"z"]

    with pytest.raises(SerializationError, match=f"record {BLOCK_ROWS + 3}") as raised:
        send(values, wake=change)
    assert raised.value.accepted == BLOCK_ROWS + 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_many_rows_are_sent_in_blocks(more: int) -> None:
    values = [b"%d" % n for n in range(BLOCK_ROWS + more)]
    delivery, rows = send(values, memory=2000)
    assert len(delivery) == len(values)
    assert [value for _, value in rows] == values
