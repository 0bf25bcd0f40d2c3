"""The control batch that ends a transaction in a partition."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kprod.broker.batch_header import CONTROL, TRANSACTIONAL
from kprod.broker.batch_writer import write_batch
from kprod.broker.corrupt_batch import CorruptBatch
from kprod.broker.legacy_message import StoredBatch

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class TransactionMarker(NamedTuple):
    """How the transaction of one producer ended, and which coordinator says so.

    The coordinator's epoch is the leader epoch of its partition of ``__transaction_state``.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def write_marker(marker: TransactionMarker, now_ms: int) -> bytes:
    """The batch (Kafka: EndTransactionMarker): key ``i16 0, i16 kind``, value ``i16 0, i32``."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    producer = (marker.producer_id, marker.producer_epoch)
    return write_batch([(key, value)], now_ms, TRANSACTIONAL | CONTROL, producer)


def read_marker(batch: StoredBatch) -> TransactionMarker | None:
    """The marker in a control batch; None for any other kind, and for one that is empty.

    Raises ``CorruptBatch``.
    """
    for record in batch.records():
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind not in (_ABORT, _COMMIT):
                return None
            _, epoch = _VALUE.unpack_from(record.value or b"")
        except struct.error:
            raise CorruptBatch(f"the control record at offset {record.offset} ends early") from None
        return TransactionMarker(batch.producer_id, batch.producer_epoch, kind == _COMMIT, epoch)
    return None
