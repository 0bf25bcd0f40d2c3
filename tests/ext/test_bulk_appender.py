"""What a bulk call leaves when it is interrupted: no batch of which the sender does not know."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from kprod.buffer.accumulator import QueueSettings
from kprod_ext import (
    BufferPool,
    BulkAppender,
    ObjectChunk,
    PartitionQueue,
    SentRecords,
    TopicAppender,
)
from tests.support.partition_queues import TP, new_queue

SETTINGS = QueueSettings(10.0, codec=1, compress=bytes)


class Checks:
    """Nothing of the rows needs one."""


class Interrupted:
    """Compression during which Ctrl-C is pressed."""

    def offer(self, batch: Any, compress: Any) -> None:
        """The batch may be compressed."""

    def help(self) -> None:
        raise KeyboardInterrupt


def rows(count: int) -> ObjectChunk:
    chunk = ObjectChunk(count, 1000, Checks())  # type: ignore[arg-type]
    chunk.load([b"v"] * count, None, None, [0] * count, None)
    return chunk


def appender_of(queue: PartitionQueue) -> BulkAppender:
    topic = TopicAppender(1, 1000)
    topic.admit(0, queue)
    return BulkAppender(topic, SentRecords())


def test_the_sender_hears_of_a_batch_at_which_the_call_was_interrupted() -> None:
    noted: deque[PartitionQueue] = deque()
    woken: list[None] = []
    queue = new_queue(
        TP,
        SETTINGS,
        compression=Interrupted(),
        note=noted.append,
        wake=lambda: woken.append(None),
    )
    with pytest.raises(KeyboardInterrupt):
        appender_of(queue).write(rows(3))
    assert queue.depth == 1
    assert (list(noted), woken) == ([queue], [None])


def test_the_sender_is_woken_again_if_that_was_interrupted() -> None:
    woken: list[None] = []

    def wake() -> None:
        woken.append(None)
        if len(woken) == 1:
            raise KeyboardInterrupt

    queue = new_queue(wake=wake)
    with pytest.raises(KeyboardInterrupt):
        appender_of(queue).write(rows(3))
    assert len(woken) == 2


def test_large_records_are_told_of_before_the_call_ends() -> None:
    """Each needs a batch of its own: after a megabyte of them the sender begins."""
    looks: list[int] = []
    queue: Any = None
    queue = new_queue(
        batch_size=1000,
        pool=BufferPool(10_000_000, 1000),
        wake=lambda: looks.append(queue.depth),
    )
    chunk = ObjectChunk(60, 1_000_000, Checks())  # type: ignore[arg-type]
    chunk.load([bytes(40_000)] * 60, None, None, [0] * 60, None)
    topic = TopicAppender(1, 1_000_000)
    topic.admit(0, queue)
    BulkAppender(topic, SentRecords()).write(chunk)
    assert looks[0] < 30
