"""One partition's log and what it remembers of producers, after Kafka's ProducerAppendInfo."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

NO_PRODUCER = -1
REMEMBERED = 5
SEQUENCES = 2**31

CORRUPT_MESSAGE, OUT_OF_ORDER, INVALID_EPOCH, INVALID_RECORD = 2, 45, 47, 87

HEADER = struct.Struct(">qiibIhiqqqhii")
BASE_OFFSET = struct.Struct(">q")


class BatchFields(NamedTuple):
    """The header of a record batch, in the order of its bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    epoch: int
    base_sequence: int
    records: int

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.records - 1) % SEQUENCES


class StoredBatch(NamedTuple):
    base_offset: int
    fields: BatchFields
    data: bytes

    @property
    def end(self) -> int:
        return self.base_offset + self.fields.records


class Appended(NamedTuple):
    """``code`` 0: stored at ``base_offset``, now or (``again``) by an earlier request."""

    code: int
    base_offset: int = -1
    again: bool = False


@dataclass(slots=True)
class ProducerEntry:
    """What is remembered of one producer: its epoch and that epoch's last batches."""

    epoch: int
    batches: deque[StoredBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def same_as(self, fields: BatchFields) -> StoredBatch | None:
        if fields.epoch != self.epoch:
            return None
        for batch in self.batches:
            known = batch.fields
            if (known.base_sequence, known.records) == (fields.base_sequence, fields.records):
                return batch
        return None

    def refusal(self, fields: BatchFields) -> int:
        if fields.epoch < self.epoch:
            return INVALID_EPOCH
        fresh = fields.epoch > self.epoch or not self.batches
        expected = 0 if fresh else (self.batches[-1].fields.last_sequence + 1) % SEQUENCES
        return 0 if fields.base_sequence == expected else OUT_OF_ORDER


class PartitionLog:
    """The batches of one partition of one incarnation of a topic.

    Replication is perfect: there is one log, whoever leads. What lies below ``committed`` was
    acknowledged by all replicas; what lies above may be lost with the leader.
    """

    def __init__(self, topic: str, topic_id: UUID, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.batches: list[StoredBatch] = []
        self.committed = 0
        self._producers: dict[int, ProducerEntry] = {}
        self._forgotten_below = 0
        self.fragile = False  # loses all it holds when it next finds a sequence out of order
        self.unclean = False  # has lost what was acknowledged
        self.lost: list[tuple[float, StoredBatch]] = []  # and when

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def append(self, data: bytes) -> Appended:
        """Store one batch, unless its producer's sequence forbids it or it is a repetition."""
        fields = BatchFields(*HEADER.unpack_from(data))
        broken = self._broken(fields, data)
        if broken:
            return Appended(broken)
        if fields.producer_id != NO_PRODUCER:
            entry = self._producers.get(fields.producer_id)
            if entry is not None:
                known = entry.same_as(fields)
                if known is not None:
                    return Appended(0, known.base_offset, again=True)
                refusal = entry.refusal(fields)
                if refusal:
                    return Appended(refusal)
        stored = StoredBatch(self.end, fields, BASE_OFFSET.pack(self.end) + data[8:])
        self.batches.append(stored)
        self._remember(stored)
        return Appended(0, stored.base_offset)

    @staticmethod
    def _broken(fields: BatchFields, data: bytes) -> int:
        if fields.magic != 2 or fields.length != len(data) - 12 or fields.base_offset != 0:
            return INVALID_RECORD
        if fields.crc != crc32c(data[21:]):
            return CORRUPT_MESSAGE
        if fields.records <= 0 or fields.last_offset_delta != fields.records - 1:
            return INVALID_RECORD
        if fields.producer_id != NO_PRODUCER and fields.base_sequence < 0:
            return INVALID_RECORD
        return 0

    def _remember(self, batch: StoredBatch) -> None:
        fields = batch.fields
        if fields.producer_id == NO_PRODUCER:
            return
        entry = self._producers.get(fields.producer_id)
        if entry is None or entry.epoch != fields.epoch:
            entry = self._producers[fields.producer_id] = ProducerEntry(fields.epoch)
        entry.batches.append(batch)

    def lose_everything(self, now: float) -> None:
        """A replica that has none of it was elected (an unclean election), and this one follows."""
        self.lost += [(now, batch) for batch in self.batches]
        self.unclean = True
        self.committed = 0
        self.truncate(0)

    def truncate(self, end: int) -> None:
        """Lose what lies at ``end`` and above; the memory of producers follows the log."""
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self._forgotten_below = min(self._forgotten_below, end)  # what is written next is not old
        self._producers.clear()
        for batch in self.batches:
            if batch.base_offset >= self._forgotten_below:
                self._remember(batch)

    def load_snapshot(self) -> None:
        """The broker was started again: its snapshot holds the last batch of each producer."""
        for entry in self._producers.values():
            entry.batches = deque([entry.batches[-1]], maxlen=REMEMBERED)

    def forget_producers(self) -> None:
        """Know nothing of any producer any more: the next batch may start at any sequence."""
        self._producers.clear()
        self._forgotten_below = self.end
