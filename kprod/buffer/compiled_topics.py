"""The partitions that the compiled ``send`` may write to without asking Python code."""

from __future__ import annotations

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.snapshot import ClusterSnapshot
from kprod.types import TopicPartition
from kprod_ext.partition_queue import StickyPartition
from kprod_ext.send import TopicAppender, TopicAppenders

MANY = 1000
"""Appenders that take room worth freeing."""


class CompiledTopics:
    """Opens appenders for partitions in use, closes those of topics that changed. Any thread.

    ``largest`` is the bytes that key and value of a record may have together.
    """

    def __init__(
        self,
        table: TopicAppenders,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        *,
        largest: int,
    ) -> None:
        self._table = table
        self._accumulator = accumulator
        self._metadata = metadata
        self._largest = largest
        self._closed = False
        table.clear()
        metadata.subscribe(MetadataListener(published=self.close_stale))

    def admit(self, tp: TopicPartition, partitions: int, sticky: StickyPartition | None) -> None:
        """Let records of ``tp`` go straight into its open batch; its topic has ``partitions``.

        ``sticky`` is where the topic's records without a key go at the moment, if they do.
        """
        appender = self.appender(tp.topic, partitions)
        if not self._can_stick(tp.topic, sticky):
            sticky = None  # drawn before one of them lost its leader
        appender.stick(sticky)
        if not appender.admits(tp.partition):
            self.admit_to(appender, tp)
        # A second time: if a snapshot was published after the first, `close_stale` may have come
        # before the appender was stuck or opened, and has not changed it.
        if not self._can_stick(tp.topic, sticky):
            appender.stick(None)

    def appender(self, topic: str, partitions: int) -> TopicAppender:
        """The appender of a topic that has ``partitions``: the open one, or one to be opened."""
        appender = self._table.get(topic)
        if appender is None or appender.partition_count != partitions:
            appender = TopicAppender(partitions, self._largest)
        return appender

    def admit_to(self, appender: TopicAppender, tp: TopicPartition) -> None:
        """Let ``appender`` know the open batch of ``tp``, and ``send`` know the appender."""
        appender.admit(tp.partition, self._accumulator.partition_queue(tp))
        self._table.open(tp.topic, appender)
        # After opening: a snapshot or a close() that came just before has not seen this appender,
        # which would stay open with an old number of partitions.
        if _is_stale(self._metadata.snapshot, tp.topic, appender.partition_count):
            self._table.close(tp.topic)
        if self._closed:
            self._table.clear()

    def close_stale(self, snapshot: ClusterSnapshot) -> None:
        """Close the appenders of topics with another number of partitions: keys are placed anew.

        Where a partition has no leader, the next record without a key is placed by the partitioner,
        which draws from those that have one.
        """
        counts = self._table.partition_counts()
        stale = [name for name, count in counts.items() if _is_stale(snapshot, name, count)]
        if len(stale) > MANY and len(stale) > len(counts) // 2:
            self._table.clear()  # frees their room; appenders still in use open again
        else:
            for name in stale:
                self._table.close(name)
        for name in counts:
            topic = snapshot.topic(name)
            appender = None if topic is None or topic.is_led else self._table.get(name)
            if appender is not None:
                appender.stick(None)

    def close(self) -> None:
        """Send every record through the Python path from now on."""
        self._closed = True
        self._table.clear()

    def _can_stick(self, name: str, sticky: StickyPartition | None) -> bool:
        """Whether records without a key may go to ``sticky``, and to those drawn ahead."""
        topic = self._metadata.snapshot.topic(name)
        if sticky is None or topic is None:
            return True
        return topic.can_take([each.partition for each in sticky.chain()])


def _is_stale(snapshot: ClusterSnapshot, name: str, partitions: int) -> bool:
    """True when the topic does not have ``partitions`` partitions any more."""
    topic = snapshot.topic(name)
    return topic is None or len(topic) != partitions
