"""The requests to coordinators, and the reactions to the error codes in their answers.

The reactions are a table by request (see Kafka's ``TransactionManager``). After a temporary error,
the request is repeated until the call times out. After some errors, Kafka's client closes the
producer although aborting would be enough. kprod aborts in these cases, because the coordinator's
answer to the abort says whether the producer can continue.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from kprod.errors import ERROR_NAMES, RETRIABLE, ErrorCode, UnsupportedVersionError
from kprod.types import TopicPartition
from kprod.wire import transactions as wire
from kprod.wire.control import decode_init_producer_id_response, encode_init_producer_id_request
from kprod.wire.versions import ApiKey

Coordinator: TypeAlias = tuple[int, str]
"""The kind of a coordinator and its key, for example ``(wire.TRANSACTION, transactional id)``."""

SINCE_2_5 = 3
"""The first version of INIT_PRODUCER_ID that asks for an epoch (KIP-360), and of TXN_OFFSET_COMMIT
that names a member (KIP-447)."""
BEFORE_IMPLICIT = 4
"""The last version of TXN_OFFSET_COMMIT and of END_TXN in protocol 1. No other request that changes
a transaction has a later one."""

_WIRE: Mapping[ApiKey, tuple[Callable[..., bytes], Callable[..., Any]]] = {
    ApiKey.FIND_COORDINATOR: (
        wire.encode_find_coordinator_request,
        wire.decode_find_coordinator_response,
    ),
    ApiKey.INIT_PRODUCER_ID: (encode_init_producer_id_request, decode_init_producer_id_response),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        wire.encode_add_partitions_request,
        wire.decode_add_partitions_response,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (wire.encode_add_offsets_request, wire.decode_add_offsets_response),
    ApiKey.TXN_OFFSET_COMMIT: (
        wire.encode_txn_offset_commit_request,
        wire.decode_txn_offset_commit_response,
    ),
    ApiKey.OFFSET_FETCH: (wire.encode_offset_fetch_request, wire.decode_offset_fetch_response),
    ApiKey.END_TXN: (wire.encode_end_txn_request, wire.decode_end_txn_response),
}


class Ask:
    """One question to a coordinator. Only ``too_old`` changes.

    ``coordinator`` gets the request; FIND_COORDINATOR asks any broker for it. ``fields`` are those
    of the request, as its writer takes them. ``about`` is what the answer is about: partitions to
    add, the id of a group to add, ``PendingOffsets``, an ``OffsetFetch``, whether to commit, or the
    question that follows. ``count`` is the maximum number of partitions in the answer.
    ``version_cap``: see ``Exchange``. ``older`` says what brokers before Apache Kafka 2.5 do, if
    they must not get the request.
    """

    too_old = False
    """True if a broker's versions could not express the question."""

    def __init__(
        self,
        api: ApiKey,
        coordinator: Coordinator,
        fields: tuple[Any, ...],
        about: Any = None,
        *,
        count: int | None = None,
        version_cap: int | None = None,
        older: str = "",
    ) -> None:
        self.api = api
        self.coordinator = coordinator
        self.fields = fields
        self.about = about
        self.version_cap = version_cap
        self._limits = () if count is None else (count,)
        self._older = older

    def __str__(self) -> str:
        if self.api is not ApiKey.FIND_COORDINATOR:
            return self.api.name
        kind, key = self.coordinator
        return f"{self.api.name} of the {'transactional id' if kind else 'group'} {key!r}"

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """The whole frame. Raises UnsupportedVersionError."""
        if self._older and version < SINCE_2_5:
            self.too_old = True
            why = f"{self.api.name}: brokers before Apache Kafka 2.5 {self._older}"
            raise UnsupportedVersionError(why)
        return _WIRE[self.api][0](version, correlation_id, client_id, *self.fields)

    def decode(self, version: int, body: memoryview) -> Any:
        """The answer. Raises ProtocolError if it is invalid."""
        return _WIRE[self.api][1](version, body, *self._limits)


def finding(then: Ask) -> Ask:
    """The question to any broker which coordinator gets ``then``."""
    kind, key = then.coordinator
    return Ask(ApiKey.FIND_COORDINATOR, then.coordinator, (key, kind), then)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


UNKNOWN_SERVER_ERROR = -1

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

_EXCEPTIONS: Mapping[tuple[ApiKey, int], Reaction] = MappingProxyType(
    {
        # The first request of a transaction may find the one before still without its markers. In
        # protocol 2 the offsets may be that request: nothing is added before them.
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS): Reaction.RETRY_SOON,
        # A group's coordinator that does not get its offsets stored may be on its way out.
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.REQUEST_TIMED_OUT): Reaction.FIND_AGAIN,
        # The code does not matter there: without an id nothing was sent that could be lost.
        (ApiKey.INIT_PRODUCER_ID, UNKNOWN_SERVER_ERROR): Reaction.RETRY,
        (ApiKey.FIND_COORDINATOR, UNKNOWN_SERVER_ERROR): Reaction.RETRY,
        # Nobody knows if it has ended: repeated, or after an abort, the request will show it.
        (ApiKey.END_TXN, UNKNOWN_SERVER_ERROR): Reaction.RETRY,
    }
)


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
"""The first set that contains the code counts. After any other code, the transaction is aborted."""


def reaction(api: ApiKey, code: int, *, implicit: bool = False) -> Reaction:
    """The reaction to ``code``, which is not 0, in a coordinator's answer to ``api``.

    ``implicit``: the brokers add partitions to the transaction themselves (protocol 2, KIP-890). If
    they do not know the transaction any more, the coordinator may have ended it after its timeout,
    which is not fencing (KIP-588). The answer to an abort shows this, and returns the next epoch.
    See also ``LATE``.
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
