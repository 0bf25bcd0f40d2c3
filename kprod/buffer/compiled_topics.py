"""The partitions to which the compiled ``send`` may write without calling Python code."""

from __future__ import annotations

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata, MetadataListener
from kprod.cluster.snapshot import ClusterSnapshot
from kprod.types import TopicPartition
from kprod_ext.partition_queue import StickyPartition
from kprod_ext.send import TopicAppender, TopicAppenders

MANY = 1000
"""If more appenders than this are stale, it is worth freeing their memory."""


class CompiledTopics:
    """Opens appenders for partitions in use, and closes those of topics that changed. Any thread.

    A ``TopicAppender`` is the compiled code that writes the records of a topic. ``largest`` is the
    maximum number of bytes of a record's key and value together.
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
        """Let the compiled ``send`` write to the open batch of ``tp``.

        The topic has ``partitions`` partitions. ``sticky`` is the current partition for the topic's
        records without a key; None if the partitioner has to be asked for each of them.
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
        """The topic's open appender if it has ``partitions`` partitions, otherwise a new one."""
        appender = self._table.get(topic)
        if appender is None or appender.partition_count != partitions:
            appender = TopicAppender(partitions, self._largest)
        return appender

    def admit_to(self, appender: TopicAppender, tp: TopicPartition) -> None:
        """Give ``appender`` the queue of ``tp``, and make the appender known to ``send``."""
        appender.admit(tp.partition, self._accumulator.partition_queue(tp))
        self._table.open(tp.topic, appender)
        # After opening: a snapshot or a close() that came just before has not seen this appender,
        # which would stay open with an old number of partitions.
        if _is_stale(self._metadata.snapshot, tp.topic, appender.partition_count):
            self._table.close(tp.topic)
        if self._closed:
            self._table.clear()

    def close_stale(self, snapshot: ClusterSnapshot) -> None:
        """Close the appenders of topics whose number of partitions has changed.

        The number decides to which partition a key maps. Also, if a partition of a topic has lost
        its leader, the partitioner chooses a partition with a leader for the next record without a
        key.
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
        """Whether records without a key may go to ``sticky`` and the partitions drawn after it."""
        topic = self._metadata.snapshot.topic(name)
        if sticky is None or topic is None:
            return True
        return topic.can_take([each.partition for each in sticky.chain()])


def _is_stale(snapshot: ClusterSnapshot, name: str, partitions: int) -> bool:
    """Whether the topic no longer has exactly ``partitions`` partitions."""
    topic = snapshot.topic(name)
    return topic is None or len(topic) != partitions
