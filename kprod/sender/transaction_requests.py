"""The requests to coordinators: the content of each, its coordinator, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from kprod.buffer.producer_id import ProducerId
from kprod.errors import UnsupportedVersionError
from kprod.sender.transactions import OffsetFetch
from kprod.types import TopicPartition
from kprod.wire import transactions as wire
from kprod.wire.control import decode_init_producer_id_response, encode_init_producer_id_request
from kprod.wire.versions import ApiKey

Coordinator: TypeAlias = tuple[int, str]
"""For what kind of thing, and for which one: ``(wire.TRANSACTION, its id)``."""

EPOCH_BUMP_FROM = 3


class Request(NamedTuple):
    """The part that all requests of a transaction share: the transactional id and the producer."""

    transactional_id: str
    producer: ProducerId | None
    implicit: bool  # the brokers add partitions themselves


class Ask:
    """One question to a coordinator; immutable.

    ``coordinator`` gets the request. ``version_cap`` as in ``Exchange``.
    """

    api: ClassVar[ApiKey]
    version_cap: int | None = None

    def __init__(self, of: Request) -> None:
        self.of = of

    @property
    def coordinator(self) -> Coordinator:
        return wire.TRANSACTION, self.of.transactional_id

    def __str__(self) -> str:
        return self.api.name

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """The whole frame."""
        raise NotImplementedError

    def decode(self, version: int, body: memoryview) -> Any:
        """The answer. Raises ProtocolError."""
        raise NotImplementedError

    @property
    def _producer(self) -> tuple[int, int]:
        if self.of.producer is None:
            raise AssertionError("a transaction has a producer id")
        return self.of.producer.producer_id, self.of.producer.epoch


class FindCoordinator(Ask):
    """The coordinator of ``wanted``; any broker knows it."""

    api = ApiKey.FIND_COORDINATOR

    def __init__(self, of: Request, wanted: Coordinator) -> None:
        super().__init__(of)
        self.wanted = wanted

    def __str__(self) -> str:
        kind, key = self.wanted
        return f"{self.api.name} of the {'transactional id' if kind else 'group'} {key!r}"

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        kind, key = self.wanted
        return wire.encode_find_coordinator_request(version, correlation_id, client_id, key, kind)

    def decode(self, version: int, body: memoryview) -> wire.CoordinatorReply:
        return wire.decode_find_coordinator_response(version, body)


class InitProducerId(Ask):
    """An id and epoch for the transactional id; another epoch when there is one (KIP-360)."""

    api = ApiKey.INIT_PRODUCER_ID

    def __init__(self, of: Request, timeout_ms: int) -> None:
        super().__init__(of)
        self.too_old = False  # the broker is: it gives no epoch to a producer that has one
        self._timeout_ms = timeout_ms

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        identity = {}
        if self.of.producer is not None:
            if version < EPOCH_BUMP_FROM:  # it would fence a producer that has taken over
                self.too_old = True
                raise UnsupportedVersionError(
                    "INIT_PRODUCER_ID: brokers before Apache Kafka 2.5 give a producer no new epoch"
                )
            producer_id, epoch = self._producer
            identity = {"producer_id": producer_id, "producer_epoch": epoch}
        return encode_init_producer_id_request(
            version,
            correlation_id,
            client_id,
            transactional_id=self.of.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            **identity,
        )

    def decode(self, version: int, body: memoryview) -> Any:
        return decode_init_producer_id_response(version, body)


class AddPartitions(Ask):
    """Records are about to be written to these partitions (protocol 1)."""

    api = ApiKey.ADD_PARTITIONS_TO_TXN

    def __init__(self, of: Request, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(of)
        self.partitions = tuple(partitions)

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(topic, []).append(partition)
        return wire.encode_add_partitions_request(
            version, correlation_id, client_id, self.of.transactional_id, self._producer, topics
        )

    def decode(self, version: int, body: memoryview) -> wire.PartitionsReply:
        return wire.decode_add_partitions_response(version, body, len(self.partitions))


class AddOffsets(Ask):
    """Offsets of this group are about to be committed (protocol 1)."""

    api = ApiKey.ADD_OFFSETS_TO_TXN

    def __init__(self, of: Request, group_id: str) -> None:
        super().__init__(of)
        self.group_id = group_id

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        return wire.encode_add_offsets_request(
            version,
            correlation_id,
            client_id,
            self.of.transactional_id,
            self._producer,
            self.group_id,
        )

    def decode(self, version: int, body: memoryview) -> wire.CodeReply:
        return wire.decode_add_offsets_response(version, body)


class CommitOffsets(Ask):
    """These offsets of the group shall hold once the transaction is committed."""

    api = ApiKey.TXN_OFFSET_COMMIT

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

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        return wire.encode_txn_offset_commit_request(
            version,
            correlation_id,
            client_id,
            self.of.transactional_id,
            self._producer,
            self.member,
            self.offsets,
        )

    def decode(self, version: int, body: memoryview) -> wire.PartitionsReply:
        return wire.decode_txn_offset_commit_response(version, body, len(self.offsets))


class FetchOffsets(Ask):
    """The committed offsets of a group, told when no transaction can change them any more."""

    api = ApiKey.OFFSET_FETCH

    def __init__(self, of: Request, fetch: OffsetFetch) -> None:
        super().__init__(of)
        self.fetch = fetch

    @property
    def coordinator(self) -> Coordinator:
        return wire.GROUP, self.fetch.group_id

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.fetch.partitions:
            topics.setdefault(topic, []).append(partition)
        return wire.encode_offset_fetch_request(
            version, correlation_id, client_id, self.fetch.group_id, topics
        )

    def decode(self, version: int, body: memoryview) -> wire.OffsetsReply:
        asked = len(self.fetch.partitions)
        return wire.decode_offset_fetch_response(version, body, asked)


class EndTransaction(Ask):
    """Commit, or abort."""

    api = ApiKey.END_TXN

    def __init__(self, of: Request, *, committed: bool) -> None:
        super().__init__(of)
        self.version_cap = None if of.implicit else 4
        self.committed = committed

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        return wire.encode_end_txn_request(
            version,
            correlation_id,
            client_id,
            self.of.transactional_id,
            self._producer,
            self.committed,
        )

    def decode(self, version: int, body: memoryview) -> wire.EndTxnReply:
        return wire.decode_end_txn_response(version, body)
