"""The loop of a bulk call. Compiled code writes records, and Python code helps when it stops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.compiled_topics import CompiledTopics
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import TopicInfo, no_partitions
from kprod.intake.partitioner import DefaultPartitioner
from kprod.types import TopicPartition
from kprod_ext import BulkAppender, BulkStop, RecordChunk, SentRecords

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery

MOST_AHEAD = 64
"""Maximum number of sticky partitions that are drawn in advance."""


class BulkParts(NamedTuple):
    """The parts of a producer that a bulk call works with.

    ``blocking_time`` returns the seconds that a call may wait without progress. A record whose key,
    value and headers have together at most ``largest`` bytes is never too large.
    """

    accumulator: RecordAccumulator
    compiled_topics: CompiledTopics
    metadata: Metadata
    partitioner: DefaultPartitioner
    wake: Callable[[], None]
    blocking_time: Callable[[], float]
    largest: int


class BulkWriting:
    """Queues chunks of records of one topic, in order. One thread.

    ``sent`` remembers where every record was queued. Compiled code writes records until it stops.
    Then this class does what the table says, and the compiled code continues:

    ================  ===========================================================================
    reason to stop    action
    ================  ===========================================================================
    ``DONE``          none: the chunk is written
    ``NO_MEMORY``     queue one record as ``send`` does, after waiting for the memory of a batch
    ``NOT_ADMITTED``  wait for the partition if it is new; give the appender its queue
    ``NO_STICKY``     draw sticky partitions, enough for the estimated bytes of the remaining rows
    ================  ===========================================================================

    As long as the number of partitions of the topic stays the same, compiled code stops with
    ``NOT_ADMITTED`` only once for each partition, and not again in later calls.
    """

    def __init__(self, parts: BulkParts, topic: str) -> None:
        """Raises as ``_begin``, and as ``Metadata.await_topic`` if the topic is unknown."""
        self.sent = SentRecords()
        self._parts = parts
        self._name = topic
        self._topic = parts.metadata.snapshot.topics.get(topic) or self._await()
        self._begin()

    def _begin(self) -> None:
        """Get an appender for the topic's partitions. Raises PartitionError if there are none."""
        count = len(self._topic.partitions)
        if not count:
            raise no_partitions(self._topic)
        appender = self._parts.compiled_topics.appender(self._name, count)
        self._topic_appender = appender
        self._appender = BulkAppender(appender, self.sent)

    def write(self, chunk: RecordChunk) -> None:
        """Queue the chunk's records.

        Raises BufferFullError if no memory for a record becomes free within ``blocking_time``, and
        ProducerClosedError after ``close``. The records before this record stay queued.
        """
        stop, metadata = None, self._parts.metadata
        while stop is not BulkStop.DONE:
            if metadata.snapshot.topics.get(self._name) is not self._topic:
                self._follow()
            stop = self._appender.write(chunk)
            if stop is BulkStop.NO_MEMORY:
                self._append(chunk)
            elif stop is BulkStop.NOT_ADMITTED:
                self._admit(self._appender.partition)
            elif stop is BulkStop.NO_STICKY:
                # How many sticky partitions are needed, by the bytes of a record so far.
                to_come = chunk.to_come * self._appender.nbytes // max(1, self.sent.count)
                shares = min(MOST_AHEAD, to_come // self._parts.accumulator.batch_size)
                self._appender.stick_to(self._parts.partitioner.upcoming(self._topic, shares))
        sticky = self._appender.sticky
        if sticky is not None:
            self._parts.partitioner.goes_on(self._topic, sticky)

    def finish(self) -> None:
        """End the call, after which nothing more is written."""
        self._parts.wake()  # after an interruption the sender may not know of the last batches

    def await_partition(self, partition: int) -> None:
        """Wait until the topic is known to have this partition. Raises as ``await_topic``."""
        if partition >= self._topic_appender.partition_count:
            self._await(partition)  # ``_follow`` takes the new topic, with its new appender

    def _await(self, partition: int | None = None) -> TopicInfo:
        parts = self._parts
        return parts.metadata.await_topic(self._name, parts.blocking_time(), parts.wake, partition)

    def _follow(self) -> None:
        """Adapt to a changed topic. If its number of partitions changed, get a new appender."""
        self._topic = self._await()
        if len(self._topic) != self._appender.partition_count:
            self._begin()
        else:
            self._appender.stick_to([])  # a partition drawn before may have lost its leader

    def _admit(self, partition: int) -> None:
        self.await_partition(partition)
        if partition < self._topic_appender.partition_count:
            tp = TopicPartition(self._name, partition)
            self._parts.compiled_topics.admit_to(self._topic_appender, tp)

    def _append(self, chunk: RecordChunk) -> None:
        """Queue the record that begins a new batch, after waiting for the batch's memory."""
        tp = TopicPartition(self._name, self._appender.partition)
        timestamp_ms, key, value, headers = chunk.row()
        try:
            appended = self._parts.accumulator.append(
                tp, timestamp_ms, key, value, headers, self._parts.blocking_time()
            )
        finally:
            for view in (key, value):
                if isinstance(view, memoryview):  # a traceback would keep the chunk's memory
                    view.release()
        self._appender.appended(chunk, appended)


class Accounted:
    """Calls ``finish`` at the end of the block. Adds ``accepted`` and ``delivery`` to exceptions.

    An exception keeps its type. So an application can still catch Ctrl-C, or an exception of its
    own iterator. If an exception interrupts ``finish``, ``finish`` is called again.
    """

    def __init__(self, delivery: BulkDelivery, finish: Callable[[], object]) -> None:
        self._delivery = delivery
        self._finish = finish

    def __enter__(self) -> None:
        """Begin the part of the call that queues records."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._account_for(error)
            return
        try:
            self._finish()
        except BaseException as interruption:
            self._account_for(interruption)
            raise

    def _account_for(self, error: BaseException) -> None:
        self._finish()
        delivery = self._delivery
        with suppress(AttributeError, TypeError):  # an exception with slots takes no attributes
            error.accepted, error.delivery = len(delivery), delivery  # type: ignore[attr-defined]
            if len(delivery):
                error.add_note(
                    f"the first {len(delivery)} records were queued before that:"
                    " error.delivery has their results"
                )
