"""Reactions to error codes of coordinators: a table, by request (Kafka's ``TransactionManager``).

What may pass is asked again within the time of the call. Where Kafka's client is stricter than
aborting needs, this one is not: after an abort the coordinator itself says whether the producer may
go on.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from kprod.errors import ERROR_NAMES, RETRIABLE
from kprod.wire.versions import ApiKey

UNKNOWN_SERVER_ERROR = -1
REQUEST_TIMED_OUT = 7
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
PRODUCER_FENCED = 90

FENCING = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED})
"""Told by a coordinator: this producer's epoch is not the last one any more."""
LATE = FENCING | {INVALID_TXN_STATE}
"""Told in protocol 2 of a commit: its producer was fenced, or its coordinator's abort was faster.

Brokers say the second by ``INVALID_TXN_STATE``, those with KAFKA-20785 by ``PRODUCER_FENCED``. The
coordinator takes an abort of that producer in the second case only.
"""
LOST = frozenset({INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING})
"""Coordinator and producer disagree about the state of the producer."""
REFUSALS = frozenset(
    {
        CLUSTER_AUTHORIZATION_FAILED,
        UNSUPPORTED_VERSION,
        INVALID_REQUEST,
        INVALID_TRANSACTION_TIMEOUT,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Another producer with the same options would be told the same."""
MOVED = frozenset({COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})


class Reaction(enum.Enum):
    """The reaction to an error code.

    ``RETRY_SOON``: ask again in a moment, for the transaction before is still being ended.
    ``RETRY``: ask again after a back-off. ``FIND_AGAIN``: find the coordinator anew first.
    ``ABORT``: the transaction can only be aborted. ``FENCED``, ``START_AGAIN`` and ``CLOSE``: the
    producer can only be closed; a new one may go on, unless it is ``CLOSE``.
    """

    RETRY_SOON = enum.auto()
    RETRY = enum.auto()
    FIND_AGAIN = enum.auto()
    ABORT = enum.auto()
    FENCED = enum.auto()
    START_AGAIN = enum.auto()
    CLOSE = enum.auto()


AGAIN = frozenset({Reaction.RETRY_SOON, Reaction.RETRY, Reaction.FIND_AGAIN})
"""The same question is asked again."""

_EXCEPTIONS: Mapping[tuple[ApiKey, int], Reaction] = MappingProxyType(
    {
        # What comes first in a transaction may find the one before still without its markers. In
        # protocol 2 that may be the offsets: no request has added anything before them.
        (ApiKey.ADD_PARTITIONS_TO_TXN, CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
        (ApiKey.ADD_OFFSETS_TO_TXN, CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
        (ApiKey.TXN_OFFSET_COMMIT, CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
        # A group's coordinator that does not get its offsets stored may be on its way out.
        (ApiKey.TXN_OFFSET_COMMIT, REQUEST_TIMED_OUT): Reaction.FIND_AGAIN,
        (ApiKey.FIND_COORDINATOR, COORDINATOR_NOT_AVAILABLE): Reaction.RETRY,
        (ApiKey.FIND_COORDINATOR, NOT_COORDINATOR): Reaction.RETRY,
        # Which code it is is no matter there: without an id nothing was sent that could be lost.
        (ApiKey.INIT_PRODUCER_ID, UNKNOWN_SERVER_ERROR): Reaction.RETRY,
        (ApiKey.FIND_COORDINATOR, UNKNOWN_SERVER_ERROR): Reaction.RETRY,
        # Whether it has ended is not known: the same question tells, or the one after an abort.
        (ApiKey.END_TXN, UNKNOWN_SERVER_ERROR): Reaction.RETRY,
    }
)


_ABORT_TELLS = frozenset(
    {
        (ApiKey.END_TXN, INVALID_TXN_STATE),
        (ApiKey.TXN_OFFSET_COMMIT, INVALID_PRODUCER_EPOCH),
        (ApiKey.TXN_OFFSET_COMMIT, PRODUCER_FENCED),
    }
)
"""In protocol 2: answers to a producer that was fenced, or that the coordinator's abort was faster
than."""

_BY_CODE: tuple[tuple[frozenset[int], Reaction], ...] = (
    (MOVED, Reaction.FIND_AGAIN),
    (RETRIABLE, Reaction.RETRY),
    (FENCING, Reaction.FENCED),
    (LOST, Reaction.START_AGAIN),
    (REFUSALS, Reaction.CLOSE),
)
"""The first that has the code counts; every other one is a reason to abort."""


def reaction(api: ApiKey, code: int, *, implicit: bool = False) -> Reaction:
    """The reaction to ``code``, which is not 0, in a coordinator's answer to ``api``.

    ``implicit``: the brokers add partitions to the transaction themselves (KIP-890). Then a
    transaction that is not there any more may have been ended by its coordinator, after its
    time-out. An abort tells whether that is so, and with which epoch to go on (KIP-588: it is no
    fencing). See ``LATE`` besides.
    """
    code = code if code in ERROR_NAMES else UNKNOWN_SERVER_ERROR
    special = _EXCEPTIONS.get((api, code))
    if special is not None:
        return special
    if implicit and (api, code) in _ABORT_TELLS:
        return Reaction.ABORT
    for codes, found in _BY_CODE:
        if code in codes:
            return found
    return Reaction.CLOSE if api is ApiKey.INIT_PRODUCER_ID else Reaction.ABORT
