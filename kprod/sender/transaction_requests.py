"""The requests to coordinators, and the reactions to error codes in their answers.

The reactions are a table, by request (Kafka's ``TransactionManager``). What may pass is asked again
within the time of the call. Where Kafka's client is stricter than aborting needs, this one is not:
after an abort the coordinator itself says whether the producer may go on.
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
"""The kind of a coordinator and its key: ``(wire.TRANSACTION, transactional id)``, say."""

EPOCH_BUMP_FROM = 3


class Request(NamedTuple):
    """The part that all requests of a transaction share: the transactional id and the producer."""

    transactional_id: str
    producer: ProducerId | None
    implicit: bool  # the brokers add partitions themselves


class Ask:
    """One question to a coordinator; only ``too_old`` changes.

    ``coordinator`` gets the request. ``version_cap`` as in ``Exchange``. ``write`` writes the whole
    frame: of version, correlation id, client id, and what ``said`` returns.
    """

    api: ClassVar[ApiKey]
    write: ClassVar[Callable[..., bytes]]
    version_cap: int | None = None
    too_old = False
    """True once a broker's versions could not say what is asked."""

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
        """What is asked, as this version says it."""
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> Any:
        """The answer. Raises ProtocolError."""
        raise NotImplementedError

    @property
    def _transaction(self) -> tuple[str, tuple[int, int]]:
        """The transactional id, and the id and epoch of the producer."""
        if self.of.producer is None:
            raise AssertionError("a transaction has a producer id")
        return self.of.transactional_id, self.of.producer[:2]


class FindCoordinator(Ask):
    """The coordinator that ``then``, the question to follow, is for; any broker knows it."""

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
    """An id and epoch for the transactional id; another epoch when there is one (KIP-360)."""

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
    """Records are about to be written to these partitions (protocol 1)."""

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
    """Offsets of this group are about to be committed (protocol 1)."""

    api = ApiKey.ADD_OFFSETS_TO_TXN
    write = staticmethod(wire.encode_add_offsets_request)
    decode = staticmethod(wire.decode_add_offsets_response)

    def __init__(self, of: Request, group_id: str) -> None:
        super().__init__(of)
        self.group_id = group_id

    def said(self, version: int) -> tuple[Any, ...]:
        return *self._transaction, self.group_id


class CommitOffsets(Ask):
    """These offsets of the group shall hold once the transaction is committed."""

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
    """The committed offsets of a group, once no open transaction can change them any more."""

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
    """Commit, or abort."""

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
"""Codes by which a coordinator says that this producer's epoch is not the last one any more."""
LATE = FENCING | {ErrorCode.INVALID_TXN_STATE}
"""Codes for a commit in protocol 2: the producer was fenced, or the coordinator's abort was faster.

Brokers say the second by ``INVALID_TXN_STATE``, those with KAFKA-20785 by ``PRODUCER_FENCED``. The
coordinator takes an abort of that producer in the second case only.
"""
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
"""Codes that another producer with the same options would get, too."""
MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


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
"""In protocol 2: answers to a producer that was fenced, or that was slower than the coordinator's
abort."""

_BY_CODE: tuple[tuple[frozenset[int], Reaction], ...] = (
    (MOVED, Reaction.FIND_AGAIN),
    (RETRIABLE, Reaction.RETRY),
    (FENCING, Reaction.FENCED),
    (LOST, Reaction.START_AGAIN),
    (REFUSALS, Reaction.CLOSE),
)
"""The first set with the code counts; any other code is a reason to abort."""


def reaction(api: ApiKey, code: int, *, implicit: bool = False) -> Reaction:
    """The reaction to ``code``, which is not 0, in a coordinator's answer to ``api``.

    ``implicit``: the brokers add partitions to the transaction themselves (KIP-890). Then a
    transaction that is not there any more may have been ended by its coordinator, after its
    time-out. The answer to an abort says so, and gives the next epoch (KIP-588: this is no
    fencing). See ``LATE``, too.
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
