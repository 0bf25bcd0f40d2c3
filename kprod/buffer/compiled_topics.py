"""The partitions that the compiled ``send`` may write to without asking Python code."""

from __future__ import annotations

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.snapshot import ClusterSnapshot, TopicInfo
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
        appender.stick(sticky)
        if not appender.admits(tp.partition):
            self.admit_to(appender, tp)

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
        if _is_stale(self._metadata.snapshot.topic(tp.topic), appender.partition_count):
            self._table.close(tp.topic)
        if self._closed:
            self._table.clear()

    def close_stale(self, snapshot: ClusterSnapshot) -> None:
        """Close the appenders of topics that changed.

        With another number of partitions keys are placed anew, and records without a key go on to a
        partition that has a leader when theirs has lost it.
        """
        counts = self._table.partition_counts()
        stale = [name for name, count in counts.items() if _is_stale(snapshot.topic(name), count)]
        if len(stale) > MANY and len(stale) > len(counts) // 2:
            self._table.clear()  # frees their room; appenders still in use open again
        else:
            for name in stale:
                self._table.close(name)

    def close(self) -> None:
        """Send every record through the Python path from now on."""
        self._closed = True
        self._table.clear()


def _is_stale(topic: TopicInfo | None, partitions: int) -> bool:
    """True when the topic does not have ``partitions`` partitions any more."""
    return topic is None or not partitions == len(topic) == len(topic.available)
