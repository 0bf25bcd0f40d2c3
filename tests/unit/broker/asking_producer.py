"""The requests of a transactional producer, and the answers that a broker must give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.protocol.api_key import ApiKey
from tests.support.raw_batch import raw_batch

Ask = Callable[..., Any]
"""Sends a request with an API, a version and fields; returns the response."""

TRANSACTIONAL = 0x10
NONE = ErrorCode.none


class Identity(NamedTuple):
    """Transactional id, producer id and epoch."""

    name: str
    producer_id: int
    epoch: int


class AskingProducer:
    """Sends the requests of a producer with transaction version 1 or 2."""

    def __init__(self, ask: Ask, version: int, name: str = "x", topic: str = "t") -> None:
        self.ask = ask
        self.topic = topic
        self.version = version
        self.identity = Identity(name, -1, -1)
        self.sequences = Counter[int]()

    def init(self, present: Identity | None = None, **changes: Any) -> ErrorCode:
        """InitProducerId."""
        fields = {"transactional_id": self.identity.name, "transaction_timeout": 60_000}
        known = present or Identity("", -1, -1)
        fields.update(producer_id=known.producer_id, producer_epoch=known.epoch)
        version = changes.pop("version", 5)
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, version, **{**fields, **changes})
        if answer.error_code is NONE:
            self._adopt(answer)
        return ErrorCode(answer.error_code)

    def _adopt(self, answer: Any) -> None:
        before = self.identity
        self.identity = Identity(before.name, answer.producer_id, answer.producer_epoch)
        if self.identity[1:] != before[1:]:
            self.sequences.clear()

    def add(self, *partitions: int, version: int = 3) -> list[ErrorCode]:
        """AddPartitionsToTxn."""
        name, producer_id, epoch = self.identity
        answer = self.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": self.topic, "partitions": partitions}],
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [part.partition_error_code for part in found.results_by_partition]

    def send(self, *values: bytes, partition: int = 0, **changes: Any) -> ErrorCode:
        """Produce, in version 1 after AddPartitionsToTxn."""
        unannounced = changes.pop("unannounced", False)
        if self.version == 1 and not unannounced:
            assert self.add(partition) == [NONE]
        version = changes.pop("version", 12 if self.version == 2 else 11)
        name = changes.pop("name", self.identity.name)
        fields = {
            "attributes": TRANSACTIONAL,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
            "base_sequence": self.sequences[partition],
        }
        part = {"index": partition, "records": raw_batch(values, **{**fields, **changes})}
        answer = self.ask(
            ApiKey.PRODUCE,
            version,
            acks=-1,
            transactional_id=name,
            topic_data=[{"name": self.topic, "partition_data": [part]}],
        )
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is NONE:
            self.sequences[partition] += len(values)
        return code

    def commit_offset(self, offset: int, *, group: str = "g", **changes: Any) -> ErrorCode:
        """TxnOffsetCommit, in version 1 after AddOffsetsToTxn."""
        name, producer_id, epoch = self.identity
        identity = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
        if self.version == 1:
            added = self.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **identity, group_id=group)
            assert added.error_code is NONE
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        topics = [{"name": self.topic, "partitions": [{**part, "committed_leader_epoch": -1}]}]
        version = 5 if self.version == 2 else 4
        fields = {**identity, "group_id": group, "generation_id": -1, "topics": topics, **changes}
        answer = self.ask(ApiKey.TXN_OFFSET_COMMIT, version, **fields)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, committed: bool, **changes: Any) -> ErrorCode:
        """EndTxn."""
        name, producer_id, epoch = self.identity
        version = changes.pop("version", 5 if self.version == 2 else 4)
        fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
        answer = self.ask(ApiKey.END_TXN, version, **{**fields, **changes}, committed=committed)
        if answer.error_code is NONE and version >= 5:
            self._adopt(answer)
        return ErrorCode(answer.error_code)


def check_answers(ask: Ask, retrying: Ask, topic: str, name: str) -> None:
    """All steps of two producers with one transactional id; ``topic`` has one partition.

    ``retrying`` repeats a request while the coordinator is busy.
    """
    first = AskingProducer(retrying, 2, name, topic)
    assert first.init() is NONE
    assert first.init(transaction_timeout=10**9) is ErrorCode.invalid_transaction_timeout
    assert first.init(transaction_timeout=0) is ErrorCode.invalid_transaction_timeout
    assert first.init(transactional_id="") is ErrorCode.invalid_request
    assert first.init(producer_id=5) is ErrorCode.invalid_request
    assert (first.init(), first.identity.epoch) == (NONE, 1)
    assert first.end(committed=True) is ErrorCode.invalid_txn_state
    assert (first.end(committed=False), first.identity.epoch) == (NONE, 2)
    assert (first.init(), first.identity.epoch) == (NONE, 3)
    for committed in (True, False):
        assert first.end(committed=committed, version=4) is ErrorCode.invalid_txn_state
    assert first.send(b"a") is NONE
    for _ in range(2):  # the response was lost: a retry gets it again
        assert first.end(committed=True, producer_epoch=3) is NONE
        assert first.identity.epoch == 4
    assert first.end(committed=False, producer_epoch=3) is ErrorCode.invalid_txn_state
    assert first.send(b"b", producer_epoch=3) is ErrorCode.invalid_producer_epoch
    assert first.send(b"b") is NONE

    assert AskingProducer(ask, 2, name).init() is ErrorCode.concurrent_transactions
    second = AskingProducer(retrying, 1, name, topic)
    assert second.init() is NONE
    assert second.identity == (name, first.identity.producer_id, 6)
    _check_zombie(first)
    _check_refusals(second)
    assert second.end(committed=True, version=4) is NONE


def _check_zombie(first: AskingProducer) -> None:
    assert first.end(committed=True) is ErrorCode.producer_fenced
    assert first.end(committed=True, version=1) is ErrorCode.invalid_producer_epoch
    assert first.add(0) == [ErrorCode.producer_fenced]
    assert first.add(0, version=1) == [ErrorCode.invalid_producer_epoch]
    assert first.init(first.identity) is ErrorCode.producer_fenced
    assert first.init(first.identity, version=3) is ErrorCode.invalid_producer_epoch
    assert first.send(b"late") is ErrorCode.invalid_producer_epoch
    assert first.commit_offset(5) is ErrorCode.invalid_producer_epoch


def _check_refusals(second: AskingProducer) -> None:
    valid = second.identity
    alone: dict[str, Any] = {"unannounced": True}
    assert second.send(b"x", **alone) is ErrorCode.transaction_abortable
    assert second.send(b"x", **alone, version=10) is ErrorCode.invalid_txn_state
    assert second.send(b"x", **alone, name="y") is ErrorCode.invalid_producer_id_mapping
    for invalid, code in (
        (valid._replace(producer_id=valid.producer_id + 77), ErrorCode.invalid_producer_id_mapping),
        (valid._replace(name="y"), ErrorCode.invalid_producer_id_mapping),
        (valid._replace(name=""), ErrorCode.invalid_request),
    ):
        second.identity = invalid
        assert second.add(0) == [code]
    second.identity = valid
    # An existing and an unknown partition; Apache Kafka orders them by hash.
    both = {ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition}
    assert set(second.add(0, 2)) == both
    assert second.add(0) == [NONE]
    assert second.send(b"x", **alone) is NONE
    unnamed = second.send(b"y", **alone, name=None)
    assert unnamed is ErrorCode.transactional_id_authorization_failed
    assert second.send(b"y", **alone, attributes=0) is ErrorCode.invalid_txn_state
    unknown: dict[str, Any] = {"generation_id": 3, "member_id": "nobody"}
    assert second.commit_offset(5, group="h", **unknown) is ErrorCode.illegal_generation
    assert second.commit_offset(5) is NONE
    assert second.commit_offset(5, **unknown) is ErrorCode.unknown_member_id
