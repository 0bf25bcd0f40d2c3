"""The open transactions of a cluster: their producers, states and times (KIP-664).

A producer that died, or that has prepared a transaction for another process to end, leaves it open
until its time-out: readers of committed records wait behind it.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from kprod.broker.client_security import NO_SECURITY, ClientSecurity
from kprod.broker.cluster_client import BrokerClient, ClusterClient
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import BrokerError
from kprod.types import TopicPartition

__all__ = ["OPEN", "OpenTransaction", "described_transaction", "open_transactions"]

OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""Kafka's names for the states in which readers of committed records wait."""
_DEFAULT_TIMEOUT: Final = 30.0
_NOT_COORDINATOR: Final = 16
_GONE: Final = 105
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_RETRY_PAUSE: Final = 0.05


class OpenTransaction(NamedTuple):
    """A transaction as its coordinator describes it.

    ``producer_id`` and ``epoch`` are what ends it by EndTxn, as ``TwoPhaseCommit`` does. Times are
    milliseconds, ``started_ms`` since the epoch.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    started_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


def open_transactions(
    bootstrap_servers: str,
    *,
    states: Collection[str] = OPEN,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> list[OpenTransaction]:
    """Those in one of ``states``, of all coordinators, by transactional id.

    Asks every broker for its list, and for a description of each transaction on it; one that has
    ended in between is left out. ``timeout`` is seconds. Raises ``KprodTimeoutError``,
    ``ConnectionLost``, ``AuthenticationError``, and ``BrokerError`` for what a broker answers.
    """
    found: dict[str, OpenTransaction] = {}
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        for broker in cluster.brokers():
            for described in _described(broker, _listed(broker, states)):
                if described.state in states:
                    found[described.transactional_id] = described
    return [found[name] for name in sorted(found)]


def described_transaction(
    bootstrap_servers: str,
    transactional_id: str,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    security: ClientSecurity = NO_SECURITY,
) -> OpenTransaction | None:
    """What the coordinator of this id knows, in whatever state; None: no such id. Raises as above.

    Asks one broker after the other, for the coordinator is one of them.
    """
    with ClusterClient(bootstrap_servers, time.monotonic() + timeout, security) as cluster:
        for broker in cluster.brokers():
            wanted = {"transactional_ids": [transactional_id]}
            (state,) = broker.call(ApiKey.DESCRIBE_TRANSACTIONS, wanted).transaction_states
            if not state.error_code:
                return _read(state)
            if state.error_code not in (_GONE, _NOT_COORDINATOR):
                raise BrokerError(state.error_code, f"DescribeTransactions {transactional_id!r}")
    return None


def _listed(broker: BrokerClient, states: Collection[str]) -> list[str]:
    """The transactional ids a broker coordinates, once it has loaded them."""
    while True:
        wanted = {"state_filters": sorted(states), "producer_id_filters": []}
        answer = broker.call(ApiKey.LIST_TRANSACTIONS, wanted)
        if not answer.error_code:
            return [listed.transactional_id for listed in answer.transaction_states]
        error = BrokerError(answer.error_code, "ListTransactions")
        if not error.retriable:
            raise error
        time.sleep(_RETRY_PAUSE)


def _described(broker: BrokerClient, names: list[str]) -> list[OpenTransaction]:
    if not names:
        return []
    answer = broker.call(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": names})
    found: list[OpenTransaction] = []
    for state in answer.transaction_states:
        if not state.error_code:
            found.append(_read(state))
        elif state.error_code != _GONE:
            raise BrokerError(state.error_code, f"DescribeTransactions {state.transactional_id!r}")
    return found


def _read(state: Any) -> OpenTransaction:
    partitions = tuple(
        TopicPartition(topic.topic, number)
        for topic in state.topics
        for number in sorted(topic.partitions)
    )
    return OpenTransaction(
        state.transactional_id,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_start_time,
        state.transaction_timeout // _MILLISECOND,
        partitions,
    )
