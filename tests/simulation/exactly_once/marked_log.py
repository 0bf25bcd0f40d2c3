"""A partition's log with the markers that end transactions in it, and what readers see of it."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from tests.simulation.model.partition_log import (
    BatchFields,
    PartitionLog,
    ProducerEntry,
    StoredBatch,
)

TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT, ABORT = b"commit", b"abort"


class MarkedLog(PartitionLog):
    """``marks`` counts the markers of each producer: what was verified before one is void."""

    def __init__(self, topic: str, topic_id: UUID, partition: int) -> None:
        super().__init__(topic, topic_id, partition)
        self.marks: Counter[int] = Counter()
        self._era = -1  # of the last coordinator that has written a marker

    def mark(self, producer_id: int, epoch: int, kind: bytes, era: int) -> bool:
        """Append a marker; False for a coordinator that was replaced meanwhile.

        One of an older epoch than the producer's is not needed any more.
        """
        if era < self._era:
            return False
        self._era = era
        self.marks[producer_id] += 1
        known = self._producers.get(producer_id)
        if known is None or known.epoch <= epoch:
            fields = _marker(producer_id, epoch)
            stored = StoredBatch(self.end, fields, kind)
            self.batches.append(stored)
            self._remember(stored)
        return True

    def _remember(self, batch: StoredBatch) -> None:
        fields = batch.fields
        if not fields.attributes & CONTROL:
            super()._remember(batch)
            return
        known = self._producers.get(fields.producer_id)
        if known is None or known.epoch < fields.epoch:
            self._producers[fields.producer_id] = ProducerEntry(fields.epoch)

    # What is open -----------------------------------------------------------------------------

    def open_since(self, below: int | None = None) -> dict[int, int]:
        """By producer id, where its open transaction begins; as seen by who reads ``below``."""
        found: dict[int, int] = {}
        for batch in self.batches:
            if below is not None and batch.end > below:
                break
            fields = batch.fields
            if fields.attributes & CONTROL:
                found.pop(fields.producer_id, None)
            elif fields.attributes & TRANSACTIONAL:
                found.setdefault(fields.producer_id, batch.base_offset)
        return found

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction here, of that epoch."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and producer_id in self.open_since()

    def committed_batches(self) -> list[StoredBatch]:
        """What a reader of committed records may have read by now, in its order."""
        stable = min(self.open_since(self.committed).values(), default=self.committed)
        fates: dict[int, bytes] = {}
        found: list[StoredBatch] = []
        for batch in reversed(self.batches):
            fields = batch.fields
            if batch.end > self.committed:
                continue
            if fields.attributes & CONTROL:
                fates[fields.producer_id] = batch.data
            elif batch.base_offset < stable and self._is_committed(fields, fates):
                found.append(batch)
        return found[::-1]

    @staticmethod
    def _is_committed(fields: BatchFields, fates: dict[int, bytes]) -> bool:
        return not fields.attributes & TRANSACTIONAL or fates.get(fields.producer_id) == COMMIT


def _marker(producer_id: int, epoch: int) -> BatchFields:
    zeros: list[Any] = [0] * len(BatchFields._fields)
    return BatchFields(*zeros)._replace(
        magic=2,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        epoch=epoch,
        base_sequence=-1,
        records=1,
    )
