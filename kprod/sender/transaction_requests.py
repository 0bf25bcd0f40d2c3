"""The requests to coordinators, and the reactions to the error codes in their answers.

The reactions are a table by request (see Kafka's ``TransactionManager``). After a temporary error,
the request is repeated until the call times out. After some errors, Kafka's client closes the
producer although aborting would be enough. kprod aborts in these cases, because the coordinator's
answer to the abort says whether the producer can continue.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from kprod.errors import ERROR_NAMES, RETRIABLE, ErrorCode, UnsupportedVersionError
from kprod.sender.transactions import OffsetFetch
from kprod.types import ProducerId, TopicPartition
from kprod.wire import transactions as wire
from kprod.wire.control import decode_init_producer_id_response, encode_init_producer_id_request
from kprod.wire.versions import ApiKey

Coordinator: TypeAlias = tuple[int, str]
"""The kind of a coordinator and its key, for example ``(wire.TRANSACTION, transactional id)``."""

EPOCH_BUMP_FROM = 3


class Request(NamedTuple):
    """What all requests of a transaction share: the transactional id and the producer."""

    transactional_id: str
    producer: ProducerId | None
    implicit: bool  # the brokers add partitions themselves


class Ask:
    """One question to a coordinator. Only ``too_old`` changes.

    ``coordinator`` gets the request. ``version_cap``: see ``Exchange``. ``write`` writes the whole
    frame, from the version, the correlation id, the client id and the result of ``said``.
    """

    api: ClassVar[ApiKey]
    write: ClassVar[Callable[..., bytes]]
    version_cap: int | None = None
    too_old = False
    """True if a broker's versions could not express the question."""

    def __init__(self, of: Request) -> None:
        self.of = of

    @property
    def coordinator(self) -> Coordinator:
        return wire.TRANSACTION, self.of.transactional_id

    def __str__(self) -> str:
        return self.api.name

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """The whole frame."""
        return type(self).write(version, correlation_id, client_id, *self.said(version))

    def said(self, version: int) -> tuple[Any, ...]:
        """The fields of the request in this version."""
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> Any:
        """The answer. Raises ProtocolError if it is invalid."""
        raise NotImplementedError

    @property
    def _transaction(self) -> tuple[str, tuple[int, int]]:
        """The transactional id, and the id and epoch of the producer."""
        if self.of.producer is None:
            raise AssertionError("a transaction has a producer id")
        return self.of.transactional_id, self.of.producer[:2]


class FindCoordinator(Ask):
    """Asks any broker for the coordinator of ``then``, the question that follows."""

    api = ApiKey.FIND_COORDINATOR
    write = staticmethod(wire.encode_find_coordinator_request)
    decode = staticmethod(wire.decode_find_coordinator_response)

    def __init__(self, then: Ask) -> None:
        super().__init__(then.of)
        self.then = then
        self.wanted = then.coordinator

    def __str__(self) -> str:
        kind, key = self.wanted
        return f"{self.api.name} of the {'transactional id' if kind else 'group'} {key!r}"

    def said(self, version: int) -> tuple[Any, ...]:
        kind, key = self.wanted
        return key, kind


class InitProducerId(Ask):
    """Asks for a producer id and epoch, or for another epoch of the same id (KIP-360)."""

    api = ApiKey.INIT_PRODUCER_ID
    write = staticmethod(encode_init_producer_id_request)
    decode = staticmethod(decode_init_producer_id_response)

    def __init__(self, of: Request, timeout_ms: int) -> None:
        super().__init__(of)
        self._timeout_ms = timeout_ms

    def said(self, version: int) -> tuple[Any, ...]:
        if self.of.producer is None:
            return self.of.transactional_id, self._timeout_ms
        if version < EPOCH_BUMP_FROM:  # it would fence a producer that has taken over
            self.too_old = True
            raise UnsupportedVersionError(
                "INIT_PRODUCER_ID: brokers before Apache Kafka 2.5 give a producer no new epoch"
            )
        return self.of.transactional_id, self._timeout_ms, *self.of.producer[:2]


class AddPartitions(Ask):
    """Adds partitions to the transaction before records are written to them (protocol 1)."""

    api = ApiKey.ADD_PARTITIONS_TO_TXN
    write = staticmethod(wire.encode_add_partitions_request)

    def __init__(self, of: Request, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(of)
        self.partitions = tuple(partitions)

    def said(self, version: int) -> tuple[Any, ...]:
        return *self._transaction, _by_topic(self.partitions)

    def decode(self, version: int, body: memoryview) -> wire.PartitionsReply:
        return wire.decode_add_partitions_response(version, body, len(self.partitions))


class AddOffsets(Ask):
    """Adds a group to the transaction before its offsets are committed (protocol 1)."""

    api = ApiKey.ADD_OFFSETS_TO_TXN
    write = staticmethod(wire.encode_add_offsets_request)
    decode = staticmethod(wire.decode_add_offsets_response)

    def __init__(self, of: Request, group_id: str) -> None:
        super().__init__(of)
        self.group_id = group_id

    def said(self, version: int) -> tuple[Any, ...]:
        return *self._transaction, self.group_id


class CommitOffsets(Ask):
    """Offsets of a group that become valid when the transaction is committed."""

    api = ApiKey.TXN_OFFSET_COMMIT
    write = staticmethod(wire.encode_txn_offset_commit_request)

    def __init__(
        self, of: Request, member: wire.GroupMetadata, offsets: Sequence[wire.OffsetToCommit]
    ) -> None:
        super().__init__(of)
        self.version_cap = None if of.implicit else 4
        self.member = member
        self.offsets = tuple(offsets)

    @property
    def coordinator(self) -> Coordinator:
        return wire.GROUP, self.member.group_id

    def said(self, version: int) -> tuple[Any, ...]:
        if version < wire.MEMBER_FROM and self.member != wire.GroupMetadata(self.member.group_id):
            self.too_old = True  # it would commit for a member that was expelled
            raise UnsupportedVersionError(
                "TXN_OFFSET_COMMIT: brokers before Apache Kafka 2.5 check no member of a group:"
                " give the id of the group alone"
            )
        return *self._transaction, self.member, self.offsets

    def decode(self, version: int, body: memoryview) -> wire.PartitionsReply:
        return wire.decode_txn_offset_commit_response(version, body, len(self.offsets))


class FetchOffsets(Ask):
    """Asks for the committed offsets of a group, when no open transaction can change them."""

    api = ApiKey.OFFSET_FETCH
    write = staticmethod(wire.encode_offset_fetch_request)

    def __init__(self, of: Request, fetch: OffsetFetch) -> None:
        super().__init__(of)
        self.fetch = fetch

    @property
    def coordinator(self) -> Coordinator:
        return wire.GROUP, self.fetch.group_id

    def said(self, version: int) -> tuple[Any, ...]:
        return self.fetch.group_id, _by_topic(self.fetch.partitions)

    def decode(self, version: int, body: memoryview) -> wire.OffsetsReply:
        return wire.decode_offset_fetch_response(version, body, len(self.fetch.partitions))


class EndTransaction(Ask):
    """Commits or aborts the transaction."""

    api = ApiKey.END_TXN
    write = staticmethod(wire.encode_end_txn_request)
    decode = staticmethod(wire.decode_end_txn_response)

    def __init__(self, of: Request, *, committed: bool) -> None:
        super().__init__(of)
        self.version_cap = None if of.implicit else 4
        self.committed = committed

    def said(self, version: int) -> tuple[Any, ...]:
        return *self._transaction, self.committed


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
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
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE): Reaction.RETRY,
        (ApiKey.FIND_COORDINATOR, ErrorCode.NOT_COORDINATOR): Reaction.RETRY,
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
