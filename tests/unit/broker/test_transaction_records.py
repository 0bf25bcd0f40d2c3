"""Kafka's layout of ``__transaction_state``, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from kprod.broker.transactions.transaction import Transaction, TransactionState
from kprod.broker.transactions.transaction_topic import (
    read_transaction,
    read_transaction_key,
    transaction_key,
    transaction_value,
)
from kprod.errors import ProtocolError
from kprod.types import TopicPartition

PARTITIONS = frozenset({TopicPartition("u", 3), TopicPartition("t", 1), TopicPartition("t", 0)})
ONGOING = Transaction(
    "my-id", 4000, 7, 60_000, TransactionState.ONGOING, PARTITIONS, 1_000, 2_000, client_version=0
)
HEAD = struct.pack(">qhib", 4000, 7, 60_000, 1)
TIMES = struct.pack(">qq", 2_000, 1_000)


def test_the_key() -> None:
    assert transaction_key("my-id") == b"\0\0\0\x05my-id"
    assert read_transaction_key(b"\0\0\0\x05my-id") == "my-id"
    assert read_transaction_key(b"\0\1\0\x05my-id") is None, "of a newer version"


def test_version_0_of_the_value() -> None:
    topics = struct.pack(">i", 2) + b"\0\1t" + struct.pack(">iii", 2, 0, 1)
    topics += b"\0\1u" + struct.pack(">ii", 1, 3)
    expected = b"\0\0" + HEAD + topics + TIMES
    assert transaction_value(ONGOING, 0) == expected
    assert read_transaction("my-id", expected) == ONGOING


def test_version_1_of_the_value_is_flexible() -> None:
    topics = b"\3" + b"\2t\3" + struct.pack(">ii", 0, 1) + b"\0"
    topics += b"\2u\2" + struct.pack(">i", 3) + b"\0"
    expected = b"\0\1" + HEAD + topics + TIMES + b"\0"
    for server_version in (1, 2):
        assert transaction_value(ONGOING, server_version) == expected
    assert read_transaction("my-id", expected) == ONGOING

    tagged = replace(ONGOING, previous_producer_id=5, next_producer_id=6, client_version=2)
    tags = b"\3" + b"\0\x08" + struct.pack(">q", 5) + b"\1\x08" + struct.pack(">q", 6)
    expected = expected[:-1] + tags + b"\2\2" + struct.pack(">h", 2)
    assert transaction_value(tagged, 2) == expected
    assert read_transaction("my-id", expected) == tagged


def test_an_empty_transaction_has_null_for_its_partitions() -> None:
    empty = Transaction("my-id", 4000, 7, 60_000, updated_ms=2_000)
    times = struct.pack(">qq", 2_000, -1)
    head = struct.pack(">qhib", 4000, 7, 60_000, 0)
    assert transaction_value(empty, 0) == b"\0\0" + head + b"\xff\xff\xff\xff" + times
    assert transaction_value(empty, 2) == b"\0\1" + head + b"\0" + times + b"\0"
    for version in (0, 2):
        assert read_transaction("my-id", transaction_value(empty, version)) == empty


def test_what_is_newer_or_broken() -> None:
    assert read_transaction("x", b"\0\2") is None
    whole = transaction_value(ONGOING, 2)
    for cut in range(2, len(whole)):
        with pytest.raises(ProtocolError):
            read_transaction("x", whole[:cut])
    with pytest.raises(ValueError, match="99"):
        read_transaction("x", whole[:16] + b"\x63" + whole[17:])
