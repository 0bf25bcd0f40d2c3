"""Which partitions the compiled ``send`` may write to without asking anybody."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kprod.buffer.accumulator import RecordAccumulator
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import ClusterSnapshot, TopicInfo
from kprod.types import TopicPartition
from kprod_ext.fast_lane import LaneTable, TopicLane
from kprod_ext.sticky_partition import StickyPartition


class FastLanes:
    """Opens lanes for partitions that were used, closes those of topics that changed. Any thread.

    ``largest`` is the bytes that key and value of a record may have together.
    """

    def __init__(
        self,
        table: LaneTable,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        wake: Callable[[], None],
        *,
        largest: int,
    ) -> None:
        self._table = table
        self._accumulator = accumulator
        self._metadata = metadata
        self._wake = wake
        self._largest = largest
        self._closed = False
        table.clear()
        metadata.on_publish = self.close_stale

    def admit(self, tp: TopicPartition, partitions: int, sticky: StickyPartition | None) -> None:
        """Let records of ``tp`` go straight into its open batch; its topic has ``partitions``.

        ``sticky`` is where the topic's records without a key go at the moment, if they do.
        """
        lane = self._table.get(tp.topic)
        if lane is None or lane.partition_count != partitions:
            lane = TopicLane(partitions, self._largest, partial(self._filled, tp.topic))
        lane.stick(sticky)
        if lane.admits(tp.partition):
            return
        lane.admit(tp.partition, self._accumulator.open_batch(tp))
        self._table.open(tp.topic, lane)
        # Looked at after opening: a snapshot published, or a close(), that came before would not
        # have seen this lane, and it would stay open with an old number of partitions.
        if _is_stale(self._metadata.snapshot.topic(tp.topic), partitions):
            self._table.close(tp.topic)
        if self._closed:
            self._table.clear()

    def _filled(self, topic: str, partition: int) -> None:
        """A record that took the lane has filled its batch."""
        self._accumulator.filled(TopicPartition(topic, partition))
        self._wake()

    def close_stale(self, snapshot: ClusterSnapshot) -> None:
        """Close the lanes of topics that changed.

        With another number of partitions keys are placed anew, and records without a key go on to a
        partition that has a leader when theirs has lost it.
        """
        for name, partitions in self._table.partition_counts().items():
            if _is_stale(snapshot.topic(name), partitions):
                self._table.close(name)

    def close(self) -> None:
        """Send every record through the Python lane from now on."""
        self._closed = True
        self._table.clear()


def _is_stale(topic: TopicInfo | None, partitions: int) -> bool:
    """True when a lane for ``partitions`` partitions is not for what is known of the topic now."""
    return topic is None or not partitions == len(topic) == len(topic.available)
