"""Transactions of producers without a further epoch: 32,767 is the highest there is."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Node
from kprod.broker.transactions.transaction import Transaction, TransactionState
from kprod.broker.transactions.transaction_topic import (
    TRANSACTION_TOPIC,
    transaction_value,
    write_transaction,
)
from tests.unit.broker.asking_producer import AskingProducer, Identity
from tests.unit.broker.nodes import ask, running_node

NONE = ErrorCode.none
LAST, HIGHEST = 32766, 32767
OLD_ID = 500


@contextmanager
def at_the_last_epoch(path: Path) -> Iterator[tuple[Node, PartitionLog, AskingProducer]]:
    """A node whose state topic tells of a producer that has the last epoch, and that producer."""
    with running_node(path) as node:
        log = node.topics.create("t", 2).partitions[0]
        (states,) = node.topics.find_or_create(TRANSACTION_TOPIC, 1).partitions
        write_transaction(states, "x", Transaction("x", OLD_ID, LAST, 60_000), 2, now_ms=0)
        node.transactions.load(states)
        producer = AskingProducer(partial(ask, node), 2)
        producer.identity = Identity("x", OLD_ID, LAST)
        yield node, log, producer


@contextmanager
def at_the_highest_epoch(path: Path) -> Iterator[tuple[Node, PartitionLog, AskingProducer]]:
    """It was too slow, and learned of the epoch that fenced it by repeating its abort."""
    with at_the_last_epoch(path) as (node, log, producer):
        assert producer.send(b"slow") is NONE
        node.transactions.time_out_all()
        assert producer.end(committed=False) is NONE
        assert producer.identity == ("x", OLD_ID, HIGHEST)
        yield node, log, producer


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records(committed=True)]


def test_nothing_is_aborted_in_the_highest_epoch_but_by_its_producer(tmp_path: Path) -> None:
    with at_the_highest_epoch(tmp_path) as (node, log, producer):
        assert producer.send(b"a") is NONE
        node.transactions.time_out_all()
        assert AskingProducer(partial(ask, node), 2).init() is ErrorCode.unknown_server_error
        found = node.transactions.find("x")
        assert found is not None
        assert (found.state.spelled, found.producer_epoch) == ("Ongoing", HIGHEST)
        assert producer.end(committed=True) is NONE
        assert values(log) == [b"a"]
        assert AskingProducer(partial(ask, node), 2).init() is NONE


def test_an_epoch_that_does_not_fit_is_never_written() -> None:
    present = Transaction("x", OLD_ID, HIGHEST, 60_000)
    with pytest.raises(ValueError, match="epoch 32768"):
        present.becomes(TransactionState.EMPTY, 0, producer_epoch=HIGHEST + 1)
    with pytest.raises(struct.error):
        transaction_value(replace(present, producer_epoch=HIGHEST + 1), 2)
