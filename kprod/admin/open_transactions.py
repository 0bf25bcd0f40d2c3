"""Lists the open transactions of a cluster: their producers, states and times (KIP-664).

A producer leaves a transaction open if it crashes, or if it prepares the transaction for another
process to end. Readers of committed records wait until the transaction ends, at the latest by its
time-out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from kprod.admin.cluster_client import NO_OPTIONS, ClusterClient, connect
from kprod.config.reading import concealed
from kprod.errors import BrokerError, ErrorCode
from kprod.types import TopicPartition
from kprod.wire.admin import TransactionState, describe_transactions, list_transactions

OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""Kafka's names of the states in which readers of committed records wait."""
_DEFAULT_TIMEOUT: Final = 30.0
_ANY: Final = re.compile(".*", re.DOTALL)
_GONE: Final = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
_ELSEWHERE: Final = (_GONE, ErrorCode.NOT_COORDINATOR)


class OpenTransaction(NamedTuple):
    """A transaction as its coordinator describes it.

    Times are in milliseconds; ``started_ms`` counts from the epoch. A request that commits or
    aborts the transaction (EndTxn) must contain its ``producer_id`` and ``epoch``.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    started_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


def open_transactions(
    bootstrap_servers: str | None = None,
    *,
    states: Collection[str] = OPEN,
    timeout: float = _DEFAULT_TIMEOUT,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> list[OpenTransaction]:
    """Return the transactions in one of ``states``, sorted by transactional id.

    Every broker is asked for its list, and then for a description of each transaction. A
    transaction that has ended meanwhile is left out. ``timeout`` is in seconds; ``options`` are
    those of a producer. Raises KprodTimeoutError, ConnectionLost, AuthenticationError, BrokerError,
    and UnsupportedVersionError for brokers before Apache Kafka 3.0.
    """
    options = concealed(options)
    with connect(bootstrap_servers, timeout, options) as cluster:
        return in_states(cluster, states)


def in_states(
    cluster: ClusterClient, states: Collection[str], wanted: re.Pattern[str] = _ANY
) -> list[OpenTransaction]:
    """Like ``open_transactions``, but uses an open ``ClusterClient``.

    Only transactions whose whole id matches ``wanted`` are described and returned.
    """
    found: dict[str, OpenTransaction] = {}
    for broker in cluster.brokers():
        for described in _described(cluster, broker, states, wanted):
            if described.state in states:
                found[described.transactional_id] = described
    return [found[name] for name in sorted(found)]


def described_transaction(
    bootstrap_servers: str | None,
    transactional_id: str,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> OpenTransaction | None:
    """Return the transaction with this id, in any state; None if there is none.

    Asks one broker after the other until it finds the coordinator. Raises the errors of
    ``open_transactions``.
    """
    options = concealed(options)
    with connect(bootstrap_servers, timeout, options) as cluster:
        for broker in cluster.brokers():
            (state,) = cluster.ask(describe_transactions([transactional_id]), broker)
            if state.error_code not in _ELSEWHERE:
                return _checked(state)
    return None


def _described(
    cluster: ClusterClient, broker: int, states: Collection[str], wanted: re.Pattern[str]
) -> list[OpenTransaction]:
    """The transactions that a broker coordinates. Waits until the broker has loaded them."""

    def names() -> list[str]:
        listed = cluster.ask(list_transactions(sorted(states)), broker)
        if listed.error_code:
            raise BrokerError(listed.error_code, "ListTransactions")
        return listed.transactional_ids

    found = [name for name in cluster.retried(names) if wanted.fullmatch(name)]
    described = cluster.ask(describe_transactions(found), broker) if found else []
    return [_checked(state) for state in described if state.error_code != _GONE]


def _checked(state: TransactionState) -> OpenTransaction:
    if state.error_code:
        raise BrokerError(state.error_code, f"DescribeTransactions {state.transactional_id!r}")
    return OpenTransaction(
        state.transactional_id,
        state.producer_id,
        state.epoch,
        state.state,
        state.started_ms,
        state.timeout_ms,
        state.partitions,
    )
