"""Around the last epochs nothing that is asked leads to an epoch beyond int16, or to a dead end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import PREPARED, Transaction, TransactionState
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.broker.transactions.transaction_topic import read_transaction, transaction_value
from kprod.errors import BrokerError
from kprod.types import TopicPartition

EPOCHS = range(32764, 32768)
STATES = tuple(TransactionState)[:6]
VERSIONS = (0, 1, 2)
PLACE = TopicPartition("t", 0)
ID, OLD_ID, STRANGER = 7, 6, 8

Operation = Callable[[Transaction], Transaction]


class Ids:
    """Producer ids that were never given away."""

    def __init__(self) -> None:
        self._left = itertools.count(1000)

    def take(self) -> int:
        return next(self._left)


def operations(who: ProducerIdentity, take: rules.TakeId) -> Iterator[tuple[str, Operation]]:
    """All that can be asked by a producer, and what time and markers bring about."""
    yield "initialize anew", lambda now: rules.initialize(now, 9, None, 1, take)
    yield "initialize", lambda now: rules.initialize(now, 9, who, 1, take)
    yield "add", lambda now: rules.add_partitions(now, who, (PLACE,), 1)
    for version, committed in itertools.product(VERSIONS, (True, False)):
        name = f"{'commit' if committed else 'abort'} by {version}"
        yield name, partial(_end, who=who, committed=committed, version=version, take=take)
    for version in VERSIONS:
        yield f"fence by {version}", partial(_fence, version=version)
    yield "complete", lambda now: rules.complete(now, 1)


def _end(
    now: Transaction, who: ProducerIdentity, committed: bool, version: int, take: rules.TakeId
) -> Transaction:
    return rules.end(now, who, committed, version, 1, take)


def _fence(now: Transaction, version: int) -> Transaction:
    return rules.fence(now, version, 1)


def is_due(name: str, state: TransactionState) -> bool:
    """What is open is fenced before it is initialized; only what ends is completed."""
    opened = state is TransactionState.ONGOING
    if name.startswith(("fence", "initialize")):
        return opened is name.startswith("fence")
    return name != "complete" or state in PREPARED


def check(transaction: Transaction) -> None:
    """It can be written, read again, and told to a producer."""
    assert 0 <= transaction.producer_epoch < 2**15
    assert -1 <= transaction.last_epoch < 2**15
    assert 0 <= rules.identity_after(transaction).producer_epoch < 2**15
    read = read_transaction(transaction.transactional_id, transaction_value(transaction, 2))
    assert read is not None
    assert replace(read, last_epoch=transaction.last_epoch) == transaction


def attempt(operation: Operation, now: Transaction) -> Transaction:
    """What becomes of it: the same for what is refused."""
    try:
        return operation(now)
    except BrokerError:
        return now


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("epoch", EPOCHS)
def test_every_operation_in_every_state_leads_to_what_can_be_written(
    epoch: int, state: TransactionState
) -> None:
    ids = Ids()
    opened = state is TransactionState.ONGOING or state in PREPARED
    places = frozenset({PLACE}) if opened else frozenset()
    for last in (-1, epoch - 1):
        now = Transaction("x", ID, epoch, 9, state, places, 1, 1, last, OLD_ID)
        for producer_id, asked in itertools.product((ID, OLD_ID, STRANGER), EPOCHS):
            for name, operation in operations(ProducerIdentity(producer_id, asked), ids.take):
                if is_due(name, state):
                    after = attempt(operation, now)
                    check(after)
                    if after.producer_id == now.producer_id:
                        assert after.producer_epoch >= now.producer_epoch
                    _ends_and_goes_on(after, ids)


def _ends_and_goes_on(now: Transaction, ids: Ids) -> None:
    """Whoever holds the present identity ends what is open, and opens another one."""
    for _ in range(3):
        if now.state in PREPARED:
            now = rules.complete(now, 1)
        now = rules.add_partitions(now, _holder(now), (PLACE,), 1)
        now = rules.end(now, _holder(now), True, 2, 1, ids.take)
        check(now)
        now = rules.complete(now, 1)
        assert now.state is TransactionState.COMPLETE_COMMIT
    assert now.producer_epoch < 2**15


def _holder(now: Transaction) -> ProducerIdentity:
    return ProducerIdentity(now.producer_id, now.producer_epoch)
