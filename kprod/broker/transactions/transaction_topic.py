"""The log behind the coordinator of transactions: ``__transaction_state``."""

from __future__ import annotations

import logging
import struct
from typing import Final

from kprod.broker.batch_header import BatchHeader
from kprod.broker.batch_writer import write_batch
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.record_batch import read_batches
from kprod.broker.transactions.transaction import Transaction
from kprod.broker.transactions.transaction_records import (
    read_transaction,
    read_transaction_key,
    transaction_key,
    transaction_value,
)

TRANSACTION_TOPIC: Final = "__transaction_state"
TOPIC_SETTINGS: Final = {"cleanup.policy": "compact"}
_READ_BYTES: Final = 1024 * 1024
_log = logging.getLogger(__name__)


def write_transaction(
    log: PartitionLog, transaction: Transaction, server_version: int, now_ms: int
) -> None:
    """Write the state of a transactional id. ``BrokerError`` 56 when the disk fails."""
    value = transaction_value(transaction, server_version)
    _write(log, transaction.transactional_id, value, now_ms)


def forget_transaction(log: PartitionLog, transactional_id: str, now_ms: int) -> None:
    """Write that there is no such transactional id any more. ``BrokerError`` 56."""
    _write(log, transactional_id, None, now_ms)


def _write(log: PartitionLog, transactional_id: str, value: bytes | None, now_ms: int) -> None:
    batch = write_batch([(transaction_key(transactional_id), value)], now_ms)
    log.append(BatchHeader.parse(batch), batch)


def read_transactions(log: PartitionLog) -> dict[str, Transaction]:
    """The last state of each transactional id; a record that cannot be read is logged."""
    found: dict[str, Transaction] = {}
    at = log.start_offset
    while at < log.end_offset:
        for batch in read_batches(log.read(at, _READ_BYTES, whole_first=True)):
            for record in () if batch.is_control else batch.records():
                try:
                    _take(found, record.key or b"", record.value)
                except (struct.error, ValueError) as error:
                    name = f"record {record.offset} of {log.where}"
                    _log.warning("%s is not readable: %s", name, error)
            at = batch.last_offset + 1
    return found


def _take(found: dict[str, Transaction], key: bytes, value: bytes | None) -> None:
    transactional_id = read_transaction_key(key)
    if transactional_id is None:
        return
    transaction = None if value is None else read_transaction(transactional_id, value)
    if transaction is None:
        found.pop(transactional_id, None)
    else:
        found[transactional_id] = transaction
