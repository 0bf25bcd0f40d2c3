"""The log behind the coordinator of transactions: __transaction_state, in Kafka's own layout."""

from __future__ import annotations

import logging
import struct
from itertools import groupby
from typing import Final

from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.records.batch_writer import write_batch
from kprod.broker.records.record_batch import BatchHeader
from kprod.broker.transactions.transaction import (
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from kprod.types import TopicPartition

_KEY_VERSION: Final = 0
_FIRST_FLEXIBLE: Final = 1
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_PREVIOUS, _NEXT, _CLIENT_VERSION = range(3)


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    encoded = transactional_id.encode()
    return struct.pack(">hh", _KEY_VERSION, len(encoded)) + encoded


def transaction_value(transaction: Transaction, server_version: int) -> bytes:
    """The state of a transactional id, as a broker of some ``transaction.version`` writes it."""
    version = min(server_version, _FIRST_FLEXIBLE)
    flexible = version >= _FIRST_FLEXIBLE
    head = _HEAD.pack(
        version,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    times = _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    parts = _partitions(transaction, flexible)
    return head + parts + times + (_tags(transaction) if flexible else b"")


def _partitions(transaction: Transaction, flexible: bool) -> bytes:
    if transaction.state is TransactionState.EMPTY:
        return b"\0" if flexible else struct.pack(">i", -1)
    by_topic = [
        (topic.encode(), [where.partition for where in found])
        for topic, found in groupby(sorted(transaction.partitions), lambda where: where.topic)
    ]
    encoded = _length(len(by_topic), ">i", flexible)
    for topic, numbers in by_topic:
        encoded += _length(len(topic), ">h", flexible) + topic
        encoded += _length(len(numbers), ">i", flexible)
        encoded += struct.pack(f">{len(numbers)}i", *numbers)
        encoded += b"\0" if flexible else b""
    return encoded


def _length(length: int, layout: str, flexible: bool) -> bytes:
    return _unsigned(length + 1) if flexible else struct.pack(layout, length)


def _tags(transaction: Transaction) -> bytes:
    fields = [
        (tag, struct.pack(layout, value))
        for tag, layout, value, absent in (
            (_PREVIOUS, ">q", transaction.previous_producer_id, NO_PRODUCER_ID),
            (_NEXT, ">q", transaction.next_producer_id, NO_PRODUCER_ID),
            (_CLIENT_VERSION, ">h", transaction.client_version, 0),
        )
        if value != absent
    ]
    encoded = _unsigned(len(fields))
    for tag, value in fields:
        encoded += _unsigned(tag) + _unsigned(len(value)) + value
    return encoded


def _unsigned(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_transaction_key(data: bytes) -> str | None:
    """The transactional id; None for a key of a newer version. ``struct.error``, ``ValueError``."""
    reader = _Reader(data, flexible=False)
    return reader.text() if reader.number(">h") == _KEY_VERSION else None


def read_transaction(transactional_id: str, data: bytes) -> Transaction | None:
    """The state in a value; None for a newer version. ``struct.error``, ``ValueError``."""
    reader = _Reader(data, flexible=False)
    version = reader.number(">h")
    if version > _FIRST_FLEXIBLE:
        return None
    reader.flexible = version >= _FIRST_FLEXIBLE
    producer_id, epoch = reader.number(">q"), reader.number(">h")
    timeout_ms, state = reader.number(">i"), TransactionState(reader.number(">b"))
    partitions = []
    for _ in range(reader.length(">i")):
        topic = reader.text()
        partitions += [
            TopicPartition(topic, reader.number(">i")) for _ in range(reader.length(">i"))
        ]
        reader.tags()
    updated_ms, started_ms = reader.number(">q"), reader.number(">q")
    tags = reader.tags()
    return Transaction(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        state,
        frozenset(partitions),
        started_ms,
        updated_ms,
        previous_producer_id=_tagged(tags, _PREVIOUS, ">q", NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, _NEXT, ">q", NO_PRODUCER_ID),
        client_version=_tagged(tags, _CLIENT_VERSION, ">h", 0),
    )


def _tagged(tags: dict[int, bytes], tag: int, layout: str, absent: int) -> int:
    found: int = struct.unpack(layout, tags[tag])[0] if tag in tags else absent
    return found


class _Reader:
    """Reads fields one after the other; ``struct.error`` where the bytes end."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._at = 0
        self.flexible = flexible

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        found: int = value
        return found

    def length(self, layout: str) -> int:
        """Of a string or array; 0 for null."""
        return max(self._unsigned() - 1 if self.flexible else self.number(layout), 0)

    def text(self) -> str:
        return self._take(self.length(">h")).decode()

    def tags(self) -> dict[int, bytes]:
        if not self.flexible:
            return {}
        return {self._unsigned(): self._take(self._unsigned()) for _ in range(self._unsigned())}

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(">B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) < length:
            raise struct.error("the record ends early")
        self._at += length
        return found


TRANSACTION_TOPIC: Final = "__transaction_state"
TOPIC_SETTINGS: Final = {"cleanup.policy": "compact"}
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
    for record in log.records():
        try:
            _take(found, record.key or b"", record.value)
        except (struct.error, ValueError) as error:
            _log.warning("record %d of %s is not readable: %s", record.offset, log.where, error)
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
