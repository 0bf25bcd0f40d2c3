"""The log behind consumer groups: ``__consumer_offsets``."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kprod.broker.batch_header import TRANSACTIONAL, BatchHeader
from kprod.broker.batch_writer import write_batch
from kprod.broker.groups.group import ConsumerGroup
from kprod.broker.groups.group_records import (
    CommittedOffset,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
)
from kprod.broker.legacy_message import StoredBatch, read_sets
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.stored_record import StoredRecord
from kprod.broker.transaction_marker import read_marker
from kprod.broker.verifications import VerificationGuard

OFFSETS_TOPIC: Final = "__consumer_offsets"
_READ_BYTES: Final = 1024 * 1024
_log = logging.getLogger(__name__)

Entry = tuple[bytes, bytes | None]
"""Key and value of one record; a value of None deletes what the key stands for."""


class OffsetsTransaction(NamedTuple):
    """The transaction that offsets are committed in, and what its first batch takes."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


def append_entries(
    log: PartitionLog,
    entries: Sequence[Entry],
    now_ms: int,
    transaction: OffsetsTransaction | None = None,
) -> int:
    """Write records, as one batch; returns the offset of the first.

    ``BrokerError`` 47 and 48 when its transaction is over, 56 when the disk fails.
    """
    if transaction is None:
        batch = write_batch(entries, now_ms)
        return log.append(BatchHeader.parse(batch), batch).base_offset
    producer = (transaction.producer_id, transaction.producer_epoch)
    batch = write_batch(entries, now_ms, TRANSACTIONAL, producer)
    return log.append(BatchHeader.parse(batch), batch, transaction.guard).base_offset


class OffsetsReader:
    """What a partition of the offsets topic says in the end: the last record of each key.

    ``pending`` are the offsets of transactions that are not decided, by producer id.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self.groups: dict[str, ConsumerGroup] = {}
        self.offsets: dict[OffsetKey, CommittedOffset] = {}
        self.pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}

    def read(self, log: PartitionLog) -> None:
        """From the first record to the last; one that cannot be read is left out and logged."""
        at = log.start_offset
        while at < log.end_offset:
            for batch in read_sets(log.read(at, _READ_BYTES, whole_first=True)):
                if batch.is_control:
                    self._end_transaction(batch)
                else:
                    for record in batch.records():
                        self._take(record, batch)
                at = batch.last_offset + 1

    def _end_transaction(self, batch: StoredBatch) -> None:
        marker = read_marker(batch)
        pending = {} if marker is None else self.pending.pop(marker.producer_id, {})
        if marker is not None and marker.committed:
            for key, committed in pending.items():
                present = self.offsets.get(key)
                if present is None or present.record_offset < committed.record_offset:
                    self.offsets[key] = committed

    def _take(self, record: StoredRecord, batch: StoredBatch) -> None:
        try:
            key = read_key(record.key or b"")
            if isinstance(key, str):
                self._take_group(key, record.value)
            elif key is not None and batch.is_transactional:
                self._take_offset(self.pending.setdefault(batch.producer_id, {}), key, record)
            elif key is not None:
                self._take_offset(self.offsets, key, record)
        except (struct.error, UnicodeDecodeError) as error:
            _log.warning("record %d of %s is not readable: %s", record.offset, OFFSETS_TOPIC, error)

    def _take_group(self, group_id: str, value: bytes | None) -> None:
        group = None if value is None else read_group(group_id, value, self._now)
        if group is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group

    def _take_offset(
        self, offsets: dict[OffsetKey, CommittedOffset], key: OffsetKey, record: StoredRecord
    ) -> None:
        committed = None if record.value is None else read_offset(record.value)
        if committed is None:
            offsets.pop(key, None)
        else:
            offsets[key] = replace(committed, record_offset=record.offset)
