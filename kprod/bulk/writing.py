"""One bulk call at work: compiled code writes, and this helps it over what stops it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kprod.buffer.accumulator import SPARE_BYTES, RecordAccumulator
from kprod.buffer.compiled_topics import CompiledTopics
from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.upcoming_partitions import UpcomingPartitions
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import TopicInfo
from kprod.intake.partitioner import DefaultPartitioner
from kprod.types import TopicPartition
from kprod_ext import (
    BulkAppender,
    BulkStop,
    BulkTurn,
    ProducerBatch,
    RecordChunk,
    SentRecords,
    StickyPartition,
    TopicAppender,
    hold_signals,
)

MOST_SPARES = 64
"""Batches in which compiled code goes on without being helped."""

RECORDS_OF_A_SHARE = 64
"""Of a sticky partition, before anything is known of their size: rather too many partitions."""


class BulkParts(NamedTuple):
    """The parts of a producer that a bulk call works with.

    ``blocking_time`` tells the seconds that a call may wait without progress; ``largest`` is the
    bytes that key, value and headers of a record may have without a second look.
    """

    accumulator: RecordAccumulator
    compiled_topics: CompiledTopics
    metadata: Metadata
    partitioner: DefaultPartitioner
    wake: Callable[[], None]
    blocking_time: Callable[[], float]
    largest: int
    turn: BulkTurn


class BulkWriting:
    """Queues chunks of records of one topic, in order. One thread.

    ``sent`` knows, after ``finish``, where every record went. Compiled code writes until it stops;
    then this does what the table says, and it goes on:

    ================  ===========================================================================
    stop              what is done
    ================  ===========================================================================
    ``DONE``          nothing: the chunk is written
    ``NO_ROOM``       there are spare batches for what is left, as many as have memory at once. If
                      none has, or the topic is compressed, the record is queued as ``send`` does it
    ``NOT_ADMITTED``  the partition is waited for if it is new; its appender gets its open batch
    ``NO_STICKY``     a sticky partition is drawn
    ================  ===========================================================================

    While the partitions of a topic stay the same it stops for `NOT_ADMITTED` once for each of them,
    not in every call, and for `NO_STICKY` with the first record. So a call of up to half a
    megabyte enters compiled code twice: it fills the open batches, and then the spare ones.
    """

    def __init__(self, parts: BulkParts, topic: str) -> None:
        """Raises as ``Metadata.await_topic``: the topic may be a new one."""
        self.sent = SentRecords()
        self._parts = parts
        self._name = topic
        self._spares: list[ProducerBatch] = []
        self._topic = self._await()
        self._turns = UpcomingPartitions(parts.partitioner, topic)
        self._partitions: dict[int, TopicPartition] = {}  # those that were needed
        self._begin()
        self._after: dict[BulkStop, Callable[[RecordChunk], None]] = {
            BulkStop.NO_ROOM: self._make_room,
            BulkStop.NOT_ADMITTED: lambda _: self._admit(self._appender.partition),
            BulkStop.NO_STICKY: lambda _: self._turns.choose(self._topic),
        }

    def _begin(self) -> None:
        """For the number of partitions that the topic has now."""
        topics, partitions = self._parts.compiled_topics, len(self._topic)
        self._topic_appender: TopicAppender = topics.appender(self._name, partitions)
        self._appender = BulkAppender(self._topic_appender, self._parts.turn, self.sent)

    def write(self, chunk: RecordChunk) -> None:
        """Queue the chunk's records.

        Raises BufferFullError when there is no memory for the next one within ``blocking_time``,
        ProducerClosedError after ``close``; the records before it are queued.
        """
        while True:
            self._look_at_topic()
            # An interruption comes before or after: what was written is queued, too.
            stop = hold_signals(self._write, chunk, self._stickies(chunk))
            if stop is BulkStop.DONE:
                break
            self._after[stop](chunk)
        self._spares.clear()  # the next chunk may be long in coming

    def _write(self, chunk: RecordChunk, stickies: list[StickyPartition]) -> BulkStop:
        """Write until something stops it; why it stopped. Waits for nothing."""
        appender, spares = self._appender, len(self._spares)
        stop = appender.write(chunk, stickies, self._spares, self._publish)
        self._turns.advance(self._topic, stickies, appender.share)
        for partition in appender.filled:
            self._parts.accumulator.filled(self._tp(partition))
        if appender.filled or len(self._spares) < spares:
            self._parts.wake()
        return stop

    def _publish(self, partition: int, spare: ProducerBatch) -> BatchDelivery:
        return self._parts.accumulator.publish(self._tp(partition), spare)

    def _tp(self, partition: int) -> TopicPartition:
        tp = self._partitions.get(partition)
        if tp is None:
            tp = self._partitions[partition] = TopicPartition(self._name, partition)
        return tp

    def finish(self) -> None:
        """Nothing more is written."""
        self._spares.clear()  # an error that the application keeps refers to them by its traceback
        self._appender.finish()
        self._parts.wake()  # after an interruption nobody else may have told the sender

    # The topic ------------------------------------------------------------------------------------

    def await_partition(self, partition: int) -> None:
        """Wait until the topic is known to have a partition. Raises as ``await_topic``."""
        if partition >= len(self._topic):
            self._topic = self._await(partition)

    def _await(self, partition: int | None = None) -> TopicInfo:
        parts = self._parts
        self._spares.clear()  # others may need the memory meanwhile
        return parts.metadata.await_topic(self._name, parts.blocking_time(), parts.wake, partition)

    def _look_at_topic(self) -> None:
        """Begin anew when the topic's number of partitions is another one now."""
        self._topic = self._parts.metadata.snapshot.topic(self._name) or self._await()
        if len(self._topic) != self._appender.partition_count:
            self._appender.finish()
            self._begin()

    def _stickies(self, chunk: RecordChunk) -> list[StickyPartition]:
        """As many as records without keys will need, each for the bytes of a full batch."""
        shares = 0 if chunk.spreads else min(self._shares(chunk), MOST_SPARES)
        stickies = self._turns.upcoming(self._topic, max(shares, len(self._spares)))
        for sticky in stickies[1:]:
            if not self._topic_appender.admits(sticky.partition):
                self._admit(sticky.partition)
        return stickies

    def _shares(self, chunk: RecordChunk) -> int:
        """How often the records to come fill a batch; a guess before one was written."""
        if record_bytes := self._appender.record_bytes:
            return chunk.to_come * record_bytes // self._parts.accumulator.batch_size
        return chunk.to_come // RECORDS_OF_A_SHARE

    def _admit(self, partition: int) -> None:
        self.await_partition(partition)
        if partition < self._topic_appender.partition_count:
            self._parts.compiled_topics.admit_to(self._topic_appender, self._tp(partition))

    # Memory ---------------------------------------------------------------------------------------

    def _make_room(self, chunk: RecordChunk) -> None:
        if self._spares or not self._find_spares(chunk):
            self._append(chunk)

    def _find_spares(self, chunk: RecordChunk) -> bool:
        """Get batches for what is left of the chunk; False if there is no memory for any."""
        accumulator, appender = self._parts.accumulator, self._appender
        to_come = chunk.to_come * appender.record_bytes
        begun = min(chunk.to_come if chunk.spreads else self._shares(chunk) + 1, len(self._topic))
        tp = self._tp(appender.partition)
        largest = accumulator.largest_batch(tp)
        full = to_come // largest
        if appender.partition_count > 1 and not chunk.spreads:
            full += full // 2  # a sticky partition may get two full batches and a bit of a third
        each = min(max(to_come // begun, accumulator.batch_size), largest)
        self._spares = accumulator.spare_batches(
            tp, min(begun + full, MOST_SPARES, SPARE_BYTES // each + 1)
        )
        return bool(self._spares)

    def _append(self, chunk: RecordChunk) -> None:
        """Queue the record that begins a new batch, whose memory may have to be waited for."""
        parts, partition = self._parts, self._appender.partition
        self._spares.clear()  # nothing may be waited for by a thread that holds memory
        timestamp_ms, key, value, headers = chunk.row()
        try:
            appended = parts.accumulator.append(
                self._tp(partition), timestamp_ms, key, value, headers, parts.blocking_time()
            )
        finally:
            for view in (key, value):
                if isinstance(view, memoryview):  # of the chunk's memory: a traceback keeps it
                    view.release()
        self._appender.appended(chunk, appended.future.delivery, appended.future.index)
        parts.partitioner.appended(self._topic, partition, appended.nbytes, appended.batch_ready)
