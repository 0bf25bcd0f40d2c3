"""One bulk call at work: compiled code writes, and this helps it over what stops it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.batch_maker import SpareBatch
from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.pace import Pace
from kprod.bulk.sticky_turns import StickyTurns
from kprod.clock import Clock
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import TopicInfo
from kprod.intake.partitioner import DefaultPartitioner
from kprod.types import TopicPartition
from kprod_ext import (
    BulkLane,
    BulkTurn,
    RecordChunk,
    SentRecords,
    StickyPartition,
    hold_signals,
)

MOST_SPARES = 64
"""Batches that the compiled lane goes on to without being helped."""


class BulkParts(NamedTuple):
    """What of a producer a bulk call works with.

    ``blocking_time`` tells the seconds that a call may wait without progress; ``largest`` is the
    bytes that key, value and headers of a record may have without a second look.
    """

    accumulator: RecordAccumulator
    metadata: Metadata
    partitioner: DefaultPartitioner
    clock: Clock
    wake: Callable[[], None]
    blocking_time: Callable[[], float]
    largest: int
    turn: BulkTurn


class BulkWriting:
    """Queues chunks of records of one topic, in order. One thread.

    ``sent`` knows, after ``finish``, where every record went.
    """

    def __init__(self, parts: BulkParts, topic: str) -> None:
        """Raises as ``Metadata.await_topic``: the topic may be a new one."""
        self.sent = SentRecords()
        self._parts = parts
        self._name = topic
        self._spares: list[SpareBatch] = []
        self._topic = self._await()
        self._turns = StickyTurns(parts.partitioner)
        self._pace = Pace(parts.accumulator.pool)
        self._places: dict[int, TopicPartition] = {}  # those that were needed
        self._admitted: set[int] = set()  # partitions the lane knows
        self._lane = BulkLane(len(self._topic), parts.turn, self.sent)

    def write(self, chunk: RecordChunk) -> None:
        """Queue the chunk's records.

        Raises BufferFullError when there is no memory for the next one within ``blocking_time``,
        ProducerClosedError after ``close``; the records before it are queued.
        """
        while True:
            lane, stickies = self._current_lane(), self._stickies()
            # An interruption comes before or after: what was written is queued, too.
            stop = hold_signals(self._write, lane, chunk, stickies)
            if stop == "done":
                self._spares.clear()  # the next chunk may be long in coming
                return
            if stop == "no room":
                if self._spares or not self._find_spares(lane, chunk):
                    self._append(chunk, lane)
            elif stop == "unknown":
                self._admit(lane.partition)
            else:
                self._turns.choose(self._topic)

    def _write(self, lane: BulkLane, chunk: RecordChunk, stickies: list[StickyPartition]) -> str:
        """Write until something stops it; why it stopped. Waits for nothing."""
        spares = len(self._spares)
        stop = lane.write(chunk, stickies, self._spares, self._publish)
        self._turns.advance(self._topic, stickies, lane.share)
        for partition in lane.filled:
            self._parts.accumulator.filled(self._place(partition))
        if lane.filled or len(self._spares) < spares:
            self._parts.wake()
        return stop

    def _publish(self, partition: int, spare: SpareBatch) -> BatchDelivery:
        return self._parts.accumulator.publish(self._place(partition), spare)

    def _place(self, partition: int) -> TopicPartition:
        place = self._places.get(partition)
        if place is None:
            place = self._places[partition] = TopicPartition(self._name, partition)
        return place

    def _find_spares(self, lane: BulkLane, chunk: RecordChunk) -> bool:
        """Get batches for what is left of the chunk; False if there is no memory for any."""
        self._pace.keep(self._parts.blocking_time())
        wanted = 1 + chunk.to_come // lane.per_batch if lane.per_batch else 1
        self._spares = self._parts.accumulator.spare_batches(
            self._place(lane.partition), min(wanted, MOST_SPARES)
        )
        if self._spares:
            self._pace.goes_ahead()
        return bool(self._spares)

    def finish(self) -> None:
        """Nothing more is written."""
        self._spares.clear()  # an error that the application keeps refers to them by its traceback
        self._lane.finish()
        self._parts.wake()  # after an interruption nobody else may have told the sender

    def await_partition(self, partition: int) -> None:
        """Wait until the topic is known to have a partition. Raises KprodTimeoutError."""
        if partition >= len(self._topic):
            self._topic = self._await(partition)

    def _await(self, partition: int | None = None) -> TopicInfo:
        parts = self._parts
        self._spares.clear()  # others may need the memory meanwhile
        return parts.metadata.await_topic(self._name, parts.blocking_time(), parts.wake, partition)

    def _current_lane(self) -> BulkLane:
        """The lane; another one when the topic's number of partitions is another one now."""
        self._topic = self._parts.metadata.snapshot.topic(self._name) or self._await()
        if len(self._topic) != self._lane.partition_count:
            self._lane.finish()
            self._lane = BulkLane(len(self._topic), self._parts.turn, self.sent)
            self._admitted.clear()
        return self._lane

    def _stickies(self) -> list[StickyPartition]:
        stickies = self._turns.upcoming(self._topic, len(self._spares))
        for sticky in stickies[1:]:
            if sticky.partition not in self._admitted:
                self._admit(sticky.partition)
        return stickies

    def _admit(self, partition: int) -> None:
        self.await_partition(partition)
        if partition < self._lane.partition_count:
            open_batch = self._parts.accumulator.open_batch(self._place(partition))
            self._lane.admit(partition, open_batch)
            self._admitted.add(partition)

    def _append(self, chunk: RecordChunk, lane: BulkLane) -> None:
        """Queue the record that begins a new batch, whose memory may have to be waited for."""
        parts = self._parts
        self._spares.clear()  # nothing may be waited for by who holds memory
        timestamp_ms, key, value, headers = chunk.row()
        try:
            appended = parts.accumulator.append(
                self._place(lane.partition),
                parts.clock.wall_ms() if timestamp_ms is None else timestamp_ms,
                key,
                value,
                headers,
                parts.blocking_time(),
            )
        finally:
            for view in (key, value):
                if isinstance(view, memoryview):  # of the chunk's memory: a traceback keeps it
                    view.release()
        lane.appended(chunk, appended.future.delivery, appended.future.index)
        if appended.wake_sender or appended.linger is not None:
            parts.wake()  # also for a linger that begins: the next record may be long in coming
        parts.partitioner.appended(
            self._topic, lane.partition, appended.nbytes, appended.batch_ready
        )
