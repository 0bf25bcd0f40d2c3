"""The compiled ``send``, without the producer around it."""

from __future__ import annotations

from typing import Any

from kprod.buffer.fast_lanes import FastLanes
from kprod.intake.partitioner import DefaultPartitioner
from kprod.sender.loop import Sender
from kprod.types import TopicPartition
from kprod_ext import FastLane, batch_size_upper_bound

LENGTHS = 12  # bytes that a record's lengths may take beyond those of an empty record


class SimLane(FastLane):
    """``send`` gives a future, or None when the record has to take the Python lane."""

    def __init__(self, sender: Sender, partitioner: DefaultPartitioner, most_bytes: int) -> None:
        self._partitioner = partitioner
        self._lanes = FastLanes(
            self._lane_table,
            sender.accumulator,
            sender.metadata,
            sender.network.wake,
            largest=most_bytes - batch_size_upper_bound(None, None) - LENGTHS,
        )

    def _send(self, *_record: Any) -> None:
        """The Python lane is elsewhere."""

    def admit(self, tp: TopicPartition, partitions: int) -> None:
        """``tp`` was used: the next record may take this lane."""
        self._lanes.admit(tp, partitions, self._partitioner.sticky(tp.topic))

    def close(self) -> None:
        self._lanes.close()
