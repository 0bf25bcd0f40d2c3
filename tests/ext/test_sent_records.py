"""Records of bulk calls: their batches by number, and interrupted calls."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.buffer.accumulator import QueueSettings
from kprod_ext import (
    BufferPool,
    BulkAppender,
    BulkStop,
    ObjectChunk,
    PartitionQueue,
    SentRecords,
    TopicAppender,
)
from tests.support.partition_queues import TP, new_queue

Batch = tuple[int, int]
"""Stands for a delivery: a partition, and which of its batches."""


def model(partitions: list[int], records: int) -> list[tuple[Batch, int]]:
    """Batch and index of every record when the batches hold ``records`` each."""
    seen: dict[int, int] = defaultdict(int)
    found = []
    for partition in partitions:
        found.append(((partition, seen[partition] // records), seen[partition] % records))
        seen[partition] += 1
    return found


def sent_as(partitions: list[int], records: int) -> SentRecords:
    sent = SentRecords()
    for batch, index in model(partitions, records):
        sent.add(batch, index)
    return sent


@given(st.lists(st.integers(0, 5), max_size=80), st.integers(1, 9))
def test_every_record_is_found(partitions: list[int], records: int) -> None:
    sent, wanted = sent_as(partitions, records), model(partitions, records)
    assert sent.count == len(partitions)
    assert [sent.locate(n) for n in range(len(partitions))] == wanted
    counts: dict[Batch, int] = defaultdict(int)
    for batch, _ in wanted:
        counts[batch] += 1
    assert sent.runs() == [(batch, 0, count) for batch, count in counts.items()]


@given(st.lists(st.integers(0, 3), max_size=120), st.integers(1, 9), st.data())
def test_the_records_of_some_parts_of_batches_are_listed(
    partitions: list[int], records: int, data: st.DataObject
) -> None:
    sent, found = sent_as(partitions, records), model(partitions, records)
    parts = [
        (batch, data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9)))
        for batch, _, _ in sent.runs()
        if data.draw(st.booleans())
    ]
    wanted = {(batch, first + n) for batch, first, count in parts for n in range(count)}
    assert sent.records_of(parts) == [n for n, place in enumerate(found) if place in wanted]


def test_a_gap_in_a_batch_begins_a_new_run() -> None:
    sent = SentRecords()
    for index in (0, 1, 5, 6):  # 2 to 4 are of another call
        sent.add("batch", index)
        sent.add("other", index // 2 * 3)
    assert [run for run in sent.runs() if run[0] == "batch"] == [("batch", 0, 2), ("batch", 5, 2)]
    assert [sent.locate(n)[1] for n in range(0, 8, 2)] == [0, 1, 5, 6]


def test_many_runs_are_kept() -> None:
    sent = SentRecords()
    rng = random.Random(1)
    indices = [rng.randrange(2**32) for _ in range(10_000)]
    for index in indices:
        sent.add("batch", index)
    assert [sent.locate(n)[1] for n in range(10_000)] == indices


SETTINGS = QueueSettings(10.0, codec=1, compress=bytes)


class Checks:
    """Rows need no checks."""


class Interrupted:
    """Compression during which Ctrl-C is pressed."""

    def offer(self, batch: Any, compress: Any) -> None:
        """The batch may be compressed."""

    def help(self) -> None:
        raise KeyboardInterrupt


def rows(count: int, value: bytes = b"v") -> ObjectChunk:
    chunk = ObjectChunk(count, 1_000_000, Checks())  # type: ignore[arg-type]
    chunk.load([value] * count, None, None, [0] * count, None)
    return chunk


def appender_of(queue: PartitionQueue) -> BulkAppender:
    topic = TopicAppender(1, 1_000_000)
    topic.admit(0, queue)
    return BulkAppender(topic, SentRecords())


def test_appending_to_an_unknown_partition_raises() -> None:
    topic = TopicAppender(1, 1000)
    assert not topic.admits(10**9)
    appender, chunk = BulkAppender(topic, SentRecords()), ObjectChunk(1, 1000, Checks())  # type: ignore[arg-type]
    chunk.load([b"v"])
    assert appender.write(chunk) is BulkStop.NO_STICKY
    with pytest.raises(IndexError):
        appender.appended(chunk, new_queue().append(1, None, b"v", ()))


def test_the_sender_is_notified_of_a_batch_when_the_call_is_interrupted() -> None:
    marked: deque[PartitionQueue] = deque()
    woken: list[None] = []
    queue = new_queue(
        TP,
        SETTINGS,
        compression=Interrupted(),
        on_change=marked.append,
        wake=lambda: woken.append(None),
    )
    with pytest.raises(KeyboardInterrupt):
        appender_of(queue).write(rows(3))
    assert queue.depth == 1
    assert (list(marked), woken) == ([queue], [None])


def test_the_sender_is_woken_again_if_the_wake_was_interrupted() -> None:
    woken: list[None] = []

    def wake() -> None:
        woken.append(None)
        if len(woken) == 1:
            raise KeyboardInterrupt

    queue = new_queue(wake=wake)
    with pytest.raises(KeyboardInterrupt):
        appender_of(queue).write(rows(3))
    assert len(woken) == 2


def test_the_sender_is_woken_during_a_call_with_large_records() -> None:
    """Each needs its own batch; the sender is woken after a megabyte."""
    depths: list[int] = []
    queue: Any = None
    queue = new_queue(
        batch_size=1000, pool=BufferPool(10_000_000, 1000), wake=lambda: depths.append(queue.depth)
    )
    appender_of(queue).write(rows(60, bytes(40_000)))
    assert depths[0] < 30
