"""What the error codes of brokers and coordinators lead to.

What becomes of a batch is decided by its partition (``Partition.attempt_failed``). The reactions to
answers of coordinators are a table by request (see Kafka's ``TransactionManager``). After a
temporary error, the request is repeated until the call times out. After some errors, Kafka's client
closes the producer although aborting would be enough. kprod aborts in these cases, because the
coordinator's answer to the abort says whether the producer can continue.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kprod.cluster.snapshot import Leadership
from kprod.errors import (
    ERROR_NAMES,
    RETRIABLE,
    ErrorCode,
)
from kprod.wire.versions import ApiKey
from kprod_ext.batch import ProducerBatch

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
SEQUENCE_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
FATAL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Codes after which an idempotent producer can never write again (``TransactionManager``)."""
CORRUPT_ATTEMPTS = 3


NEVER_SENT_BEFORE = (
    "it was never sent before: another producer writes with the same producer id, or the broker is"
    " mistaken; whether it has stored the records is not known"
)
MAKE_ANEW = (
    "an idempotent producer that is refused so can send nothing more: make a new one once its"
    " principal is allowed to write"
)


def proves(acknowledged: ProducerBatch, earlier: ProducerBatch) -> bool:
    """True if the acknowledgement of a later batch proves that the refused ``earlier`` is stored.

    Both answers must come from the same broker, for the same topic id. Another broker, or a topic
    that was created again, may not know the producer, and accepts any batch as the first. The
    leader's epoch may have grown in between: after a restart, a refusal often comes before the
    metadata with the new epoch.
    """
    now: Leadership | None = acknowledged.attempted_leader
    then: Leadership | None = earlier.attempted_leader
    if now is None or then is None or now.topic_id != then.topic_id:
        return False
    return now.leader_id == then.leader_id and now.leader_epoch >= then.leader_epoch


# Answers of coordinators --------------------------------------------------------------------------

FENCING = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Codes by which a coordinator says that this producer's epoch is no longer the latest."""
LATE = FENCING | {ErrorCode.INVALID_TXN_STATE}
"""Codes for a commit in protocol 2: the producer was fenced, or the coordinator has aborted the
transaction first. Brokers return ``INVALID_TXN_STATE`` in the second case; with KAFKA-20785 they
return ``PRODUCER_FENCED``. Only in the second case does the coordinator accept an abort of this
producer."""
LOST = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""Coordinator and producer disagree about the state of the producer."""
REFUSALS = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Codes that a new producer with the same options would get as well."""
MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class Reaction(enum.Enum):
    """The reaction to an error code.

    ``RETRY_SOON``: ask again in a moment, because the previous transaction is still being ended.
    ``RETRY``: ask again after a back-off. ``FIND_AGAIN``: find the coordinator again, then ask it.
    ``ABORT``: the transaction can only be aborted. ``FENCED``, ``START_AGAIN`` and ``CLOSE``: the
    producer can only be closed. A new one can continue, except after ``CLOSE``.
    """

    RETRY_SOON = enum.auto()
    RETRY = enum.auto()
    FIND_AGAIN = enum.auto()
    ABORT = enum.auto()
    FENCED = enum.auto()
    START_AGAIN = enum.auto()
    CLOSE = enum.auto()


AGAIN = frozenset({Reaction.RETRY_SOON, Reaction.RETRY, Reaction.FIND_AGAIN})
"""Reactions after which the same question is asked again."""

_EXCEPTIONS: Mapping[tuple[ApiKey, int], Reaction] = {
    # The first request of a transaction may find the one before still without its markers. In
    # protocol 2 the offsets may be that request: nothing is added before them.
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
    # A group's coordinator that does not get its offsets stored may be on its way out.
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT): Reaction.FIND_AGAIN,
    # The code does not matter there: without an id nothing was sent that could be lost.
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.UNKNOWN_SERVER_ERROR): Reaction.RETRY,
    (ApiKey.FIND_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR): Reaction.RETRY,
    # Nobody knows if it has ended: repeated, or after an abort, the request will show it.
    (ApiKey.END_TXN, ErrorCode.UNKNOWN_SERVER_ERROR): Reaction.RETRY,
}


_ABORT_TELLS = frozenset(
    {
        (ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.PRODUCER_FENCED),
    }
)
"""In protocol 2: codes for a producer that was fenced, or whose transaction the coordinator has
aborted."""

_BY_CODE: tuple[tuple[frozenset[int], Reaction], ...] = (
    (MOVED, Reaction.FIND_AGAIN),
    (RETRIABLE, Reaction.RETRY),
    (FENCING, Reaction.FENCED),
    (LOST, Reaction.START_AGAIN),
    (REFUSALS, Reaction.CLOSE),
)
"""The first set that contains the code counts. For any other code, see ``reaction``."""


def reaction(api: ApiKey, code: int, *, implicit: bool = False) -> Reaction:
    """The reaction to ``code``, which is not 0, in a coordinator's answer to ``api``.

    ``implicit``: the brokers add partitions to the transaction themselves (protocol 2, KIP-890). If
    they do not know the transaction any more, the coordinator may have ended it after its timeout,
    which is not fencing (KIP-588). The answer to an abort shows this, and returns the next epoch.
    See also ``LATE``.
    """
    code = code if code in ERROR_NAMES else ErrorCode.UNKNOWN_SERVER_ERROR
    special = _EXCEPTIONS.get((api, code))
    if special is not None:
        return special
    if implicit and (api, code) in _ABORT_TELLS:
        return Reaction.ABORT
    for codes, found in _BY_CODE:
        if code in codes:
            return found
    return Reaction.CLOSE if api is ApiKey.INIT_PRODUCER_ID else Reaction.ABORT
