"""A transactional producer, request by request, for tests of what handlers answer."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from tests.support.raw_batch import raw_batch
from tests.unit.broker.nodes import ask

TRANSACTIONAL = 0x10
NONE = ErrorCode.none


class Identity(NamedTuple):
    """Of a producer, with its transactional id."""

    name: str
    producer_id: int
    epoch: int


class AskingProducer:
    """Asks a node what a producer of version 1 or 2 of transactions would."""

    def __init__(self, node: Node, version: int, name: str = "x") -> None:
        self.node = node
        self.version = version
        self.identity = Identity(name, -1, -1)
        self.sequences = Counter[int]()

    def init(self, present: Identity | None = None, **changes: Any) -> ErrorCode:
        """InitProducerId."""
        fields = {"transactional_id": self.identity.name, "transaction_timeout": 60_000}
        known = present or Identity("", -1, -1)
        fields.update(producer_id=known.producer_id, producer_epoch=known.epoch)
        version = changes.pop("version", 5)
        answer = ask(self.node, ApiKey.INIT_PRODUCER_ID, version, **{**fields, **changes})
        if answer.error_code is NONE:
            self._adopt(answer)
        return ErrorCode(answer.error_code)

    def _adopt(self, answer: Any) -> None:
        before = self.identity
        self.identity = Identity(before.name, answer.producer_id, answer.producer_epoch)
        if self.identity[1:] != before[1:]:
            self.sequences.clear()

    def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[ErrorCode]:
        """AddPartitionsToTxn."""
        name, producer_id, epoch = self.identity
        answer = ask(
            self.node,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": topic, "partitions": partitions}],
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [part.partition_error_code for part in found.results_by_partition]

    def send(self, *values: bytes, partition: int = 0, **changes: Any) -> ErrorCode:
        """Produce, after AddPartitionsToTxn by version 1."""
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
        answer = ask(
            self.node,
            ApiKey.PRODUCE,
            version,
            acks=-1,
            transactional_id=name,
            topic_data=[{"name": "t", "partition_data": [part]}],
        )
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is NONE:
            self.sequences[partition] += len(values)
        return code

    def commit_offset(self, offset: int, *, group: str = "g", **changes: Any) -> ErrorCode:
        """TxnOffsetCommit, after AddOffsetsToTxn by version 1."""
        name, producer_id, epoch = self.identity
        who = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
        if self.version == 1:
            added = ask(self.node, ApiKey.ADD_OFFSETS_TO_TXN, 4, **who, group_id=group)
            assert added.error_code is NONE
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        topics = [{"name": "t", "partitions": [{**part, "committed_leader_epoch": -1}]}]
        version = 5 if self.version == 2 else 4
        fields = {**who, "group_id": group, "generation_id": -1, "topics": topics, **changes}
        answer = ask(self.node, ApiKey.TXN_OFFSET_COMMIT, version, **fields)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, committed: bool, **changes: Any) -> ErrorCode:
        """EndTxn."""
        name, producer_id, epoch = self.identity
        version = changes.pop("version", 5 if self.version == 2 else 4)
        fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
        answer = ask(
            self.node, ApiKey.END_TXN, version, **{**fields, **changes}, committed=committed
        )
        if answer.error_code is NONE and version >= 5:
            self._adopt(answer)
        return ErrorCode(answer.error_code)
