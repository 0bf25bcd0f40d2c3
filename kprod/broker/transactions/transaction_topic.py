"""The topic ``__transaction_state``: the log of the transaction coordinator, in Kafka's layout."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import Any, Final

from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.protocol.record_schema import Field, RecordSchema, entity
from kprod.broker.records.batch_writer import write_batch
from kprod.broker.transactions.transaction import (
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from kprod.errors import ProtocolError
from kprod.records.record_batch import BatchHeader
from kprod.types import TopicPartition

TRANSACTION_TOPIC: Final = "__transaction_state"
_log = logging.getLogger(__name__)


def _value_entity(*, flexible: bool) -> Any:
    partitions = entity(
        "PartitionsSchema",
        flexible=flexible,
        topic="string",
        partition_ids=Field("int32", is_array=True),
    )
    return entity(
        "TransactionLogValue",
        flexible=flexible,
        producer_id="int64",
        producer_epoch="int16",
        timeout_ms="int32",
        state="int8",
        partitions=Field(partitions, is_array=True, nullable=True),
        updated_ms="int64",
        started_ms="int64",
        previous_producer_id=Field("int64", tag=0, default=NO_PRODUCER_ID),
        next_producer_id=Field("int64", tag=1, default=NO_PRODUCER_ID),
        client_version=Field("int16", tag=2, default=0),
    )


_KEY_VERSION: Final = 0
_FIRST_FLEXIBLE: Final = 1
_KEY: Final = RecordSchema({_KEY_VERSION: entity("TransactionLogKey", transactional_id="string")})
_VALUE: Final = RecordSchema(
    {0: _value_entity(flexible=False), _FIRST_FLEXIBLE: _value_entity(flexible=True)}
)


def transaction_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id's record."""
    return _KEY.encode(_KEY_VERSION, {"transactional_id": transactional_id})


def transaction_value(transaction: Transaction, server_version: int) -> bytes:
    """Encode the value of a transactional id's record.

    The version of the value is that of a broker with this ``transaction.version``.
    """
    by_topic = groupby(sorted(transaction.partitions), lambda where: where.topic)
    partitions = [
        {"topic": topic, "partition_ids": [where.partition for where in found]}
        for topic, found in by_topic
    ]
    is_empty = transaction.state is TransactionState.EMPTY
    fields = {name: getattr(transaction, name) for name in _SAME_FIELDS}
    return _VALUE.encode(
        min(server_version, _FIRST_FLEXIBLE),
        {**fields, "state": transaction.state, "partitions": None if is_empty else partitions},
    )


_SAME_FIELDS: Final = (
    "producer_id",
    "producer_epoch",
    "timeout_ms",
    "updated_ms",
    "started_ms",
    "previous_producer_id",
    "next_producer_id",
    "client_version",
)
"""Fields with the same name in the record and in ``Transaction``."""


def read_transaction_key(data: bytes) -> str | None:
    """Decode a key to its transactional id; None for a newer version. Raises ``ProtocolError``."""
    found = _KEY.decode(data)
    return None if found is None else found[1].transactional_id


def read_transaction(transactional_id: str, data: bytes) -> Transaction | None:
    """Decode a value; None for a newer version. Raises ``ProtocolError`` or ``ValueError``."""
    found = _VALUE.decode(data)
    if found is None:
        return None
    _, value = found
    partitions = (
        TopicPartition(topic.topic, number)
        for topic in value.partitions or ()
        for number in topic.partition_ids
    )
    return Transaction(
        transactional_id,
        state=TransactionState(value.state),
        partitions=frozenset(partitions),
        **{name: getattr(value, name) for name in _SAME_FIELDS},
    )


def write_transaction(
    log: PartitionLog, name: str, transaction: Transaction | None, server_version: int, now_ms: int
) -> None:
    """Write the state of a transactional id; None deletes the id.

    Raises ``BrokerError`` 56 if the disk fails.
    """
    value = None if transaction is None else transaction_value(transaction, server_version)
    batch = write_batch([(transaction_key(name), value)], now_ms)
    log.append(BatchHeader.parse(batch), batch)


def read_transactions(log: PartitionLog) -> dict[str, Transaction]:
    """Read the last state of each transactional id. Unreadable records are logged and skipped."""
    found: dict[str, Transaction] = {}
    for record in log.records():
        try:
            _take(found, record.key or b"", record.value)
        except (ProtocolError, ValueError) as error:
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
