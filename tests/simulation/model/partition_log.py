"""One partition's log, which can lose records; its rules are the embedded broker's."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from kprod.broker.handlers.produce import check_batch
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.producer_state import NO_PRODUCER, ProducerState
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader
from tests.simulation.events import WALL_START_MS

NEWEST_PRODUCE = 13
BASE_OFFSET = struct.Struct(">q")


class StoredBatch(NamedTuple):
    header: BatchHeader
    data: bytes

    @property
    def end(self) -> int:
        return self.header.last_offset + 1


class Appended(NamedTuple):
    """``code`` 0: stored at ``base_offset``, now or (``again``) by an earlier request."""

    code: int
    base_offset: int = -1
    again: bool = False


class PartitionLog:
    """The batches of one partition of one incarnation of a topic.

    All leaders share one log. Records below ``committed`` were acknowledged by all replicas; the
    others may be lost with the leader.
    """

    def __init__(self, topic: str, topic_id: UUID, partition: int, max_batch_bytes: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.batches: list[StoredBatch] = []
        self.committed = 0
        self._config = LogConfig(max_message_bytes=max_batch_bytes)
        self._producers = ProducerState()
        self._forgotten_below = 0
        self.fragile = False  # loses all records at the next sequence out of order
        self.unclean = False  # has lost acknowledged records
        self.lost: list[tuple[float, StoredBatch]] = []  # with times

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def append(self, data: bytes) -> Appended:
        """Store one batch, unless its sequence is wrong or it is a duplicate."""
        try:
            header = check_batch(data, NEWEST_PRODUCE, self._config, WALL_START_MS)
            known = self._producers.duplicate_of(header)
            if known is not None:
                return Appended(0, known.first_offset, again=True)
            self._producers.check(header)
        except BrokerError as error:
            return Appended(error.code)
        placed = replace(header, base_offset=self.end)
        self.batches.append(StoredBatch(placed, BASE_OFFSET.pack(self.end) + data[8:]))
        self._remember(placed)
        return Appended(0, placed.base_offset)

    def _remember(self, header: BatchHeader) -> None:
        if header.producer_id != NO_PRODUCER:
            self._producers.update(header)

    def lose_everything(self, now: float) -> None:
        """Truncate to an empty replica, the new leader (an unclean election)."""
        self.lost += [(now, batch) for batch in self.batches]
        self.unclean = True
        self.committed = 0
        self.truncate(0)

    def truncate(self, end: int) -> None:
        """Remove records at ``end`` and above, and rebuild the producers' state."""
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self._forgotten_below = min(self._forgotten_below, end)  # later records are not forgotten
        self._producers = ProducerState()
        for batch in self.batches:
            if batch.header.base_offset >= self._forgotten_below:
                self._remember(batch.header)

    def load_snapshot(self) -> None:
        """After a restart: the snapshot has the last batch of each producer."""
        for _, entry in self._producers:
            last = entry.batches.pop()
            entry.batches.clear()
            entry.batches.append(last)

    def forget_producers(self) -> None:
        self._producers = ProducerState()
        self._forgotten_below = self.end
