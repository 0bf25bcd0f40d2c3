"""Reads topics, and manages topics, groups and transactions of any Kafka cluster.

Each function connects like a producer with the same options, for example for TLS, SASL, proxies and
your own transports. The argument ``bootstrap_servers`` replaces the option, unless it is None.
"""

from __future__ import annotations

from kprod.admin.group_offsets import GroupOffset, committed_offsets
from kprod.admin.log_reader import create_topic, end_offsets, read_topic
from kprod.admin.open_transactions import (
    OPEN,
    OpenTransaction,
    described_transaction,
    open_transactions,
)
from kprod.records.codecs import BatchTooLarge, CorruptBatch
from kprod.records.record_batch import StoredRecord

__all__ = [
    "OPEN",
    "BatchTooLarge",
    "CorruptBatch",
    "GroupOffset",
    "OpenTransaction",
    "StoredRecord",
    "committed_offsets",
    "create_topic",
    "described_transaction",
    "end_offsets",
    "open_transactions",
    "read_topic",
]
