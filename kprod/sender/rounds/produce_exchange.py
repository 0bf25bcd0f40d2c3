"""One Produce request: the batches of one node, and the matching of its answer to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kprod.cluster.snapshot import Broker, LeaderHint
from kprod.errors import BrokerError, ConnectionLost, KprodError, ProtocolError
from kprod.sender.exchange import Buffers
from kprod.sender.outcomes import Outcomes
from kprod.sender.window import Passage
from kprod.types import TopicPartition
from kprod.wire.produce import decode_produce_response, encode_produce_request
from kprod.wire.versions import ApiKey
from kprod_ext.batch import ProducerBatch
from kprod_ext.peer_text import printable
from kprod_ext.produce import PartitionBatch, PartitionResponse

NOBODY: Mapping[int, Broker] = MappingProxyType({})
LAST_VERSION_BY_NAME = 12  # from 13 on topics are named by id (KIP-516)
LAST_VERSION_WITHOUT_ADDING = 11
"""From 12 on brokers add the partitions of a transaction themselves (KIP-890)."""


class TransactionOfBatches(NamedTuple):
    """``implicit``: the brokers add partitions to the transaction themselves."""

    transactional_id: str
    implicit: bool


class ProduceExchange:
    """Carries the batches until each has a verdict.

    Owns their memory from the first byte to the end. ``passage``: of the request through the
    node's window.
    """

    api = ApiKey.PRODUCE

    def __init__(
        self,
        outcomes: Outcomes,
        batches: list[ProducerBatch],
        topic_ids: dict[str, bytes | None],
        acks: int,
        timeout_ms: int,
        node_id: int,
        passage: Passage,
        transaction: TransactionOfBatches | None = None,
    ) -> None:
        self.version_cap = LAST_VERSION_BY_NAME if None in topic_ids.values() else None
        self._transactional_id = None
        if transaction is not None:
            self._transactional_id = transaction.transactional_id
            if not transaction.implicit:
                self.version_cap = LAST_VERSION_WITHOUT_ADDING
        self.expects_response = acks != 0
        self._outcomes = outcomes
        # Those without a verdict yet.
        self._batches: dict[tuple[str, int], ProducerBatch] = {batch.tp: batch for batch in batches}
        self._topic_ids = topic_ids
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._node_id = node_id
        self._passage = passage
        self._named: Mapping[int, Broker] = NOBODY  # leaders that the answer tells the addresses of
        # What it says of partitions it refuses.
        self._moved: dict[TopicPartition, LeaderHint] | None = None

    @property
    def batches(self) -> list[ProducerBatch]:
        """Those that have no verdict yet."""
        return list(self._batches.values())

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        parts: list[PartitionBatch] = []
        for (topic, partition), batch in self._batches.items():
            records = batch.records
            if records is not None:
                parts.append(PartitionBatch(topic, self._topic_ids[topic], partition, records))
        return encode_produce_request(
            version,
            correlation_id,
            client_id,
            self._acks,
            self._timeout_ms,
            parts,
            self._transactional_id,
        )

    def answered(self, version: int, body: memoryview, now: float) -> int:
        if not self.expects_response:
            self._outcomes.answered_after(self._node_id, self._passage.answered(now), 0)
            while self._batches:
                self._outcomes.stored(self._batches.popitem()[1], -1, -1)
            return 0
        records = sum(batch.record_count for batch in self._batches.values())
        response = decode_produce_response(version, body, len(self._batches), records)
        seconds = self._passage.answered(now)
        self._outcomes.answered_after(self._node_id, seconds, response.throttle_ms)
        if response.brokers:
            self._named = {broker.node_id: Broker(*broker) for broker in response.brokers}
        unasked = ""
        names = {topic_id: topic for topic, topic_id in self._topic_ids.items() if topic_id}
        for part in response.partitions:
            topic = part.topic or (names.get(part.topic_id, "") if part.topic_id else "")
            place = topic, part.partition
            batch = self._batches.get(place)
            if batch is None:
                unasked = unasked or f"{topic}-{part.partition}"
            else:
                self._settle(batch, part, now)
                del self._batches[place]  # after: what cannot be settled fails with the connection
        if unasked:
            self._outcomes.answered_unasked(self._node_id, unasked, now)
        self._end_left_out(now)
        if self._moved is not None:
            self._outcomes.leaders_moved(self._moved)
        return response.throttle_ms

    def _end_left_out(self, now: float) -> None:
        while self._batches:
            _, batch = self._batches.popitem()
            left_out = ProtocolError(f"the broker's answer leaves out {batch.tp}")
            self._outcomes.attempt_failed(batch, left_out, now, maybe=True)

    def _settle(self, batch: ProducerBatch, part: PartitionResponse, now: float) -> None:
        if part.error_code == 0:
            self._outcomes.stored(batch, part.base_offset, part.log_append_time_ms)
            return
        error = BrokerError(part.error_code, _detail(batch, part))
        error.record_errors = dict(part.record_errors)
        # With an error, too, a leader tells an offset if it has stored the batch: it lost its
        # office or its disk while replicas were fetching it (Kafka's DelayedProduce).
        stored = part.base_offset >= 0
        if part.leader_id >= 0:
            broker = self._named.get(part.leader_id)
            if self._moved is None:
                self._moved = {}
            self._moved[batch.tp] = LeaderHint(part.leader_id, part.leader_epoch, broker)
        self._outcomes.attempt_failed(batch, error, now, maybe=stored)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        if isinstance(error, ConnectionLost):
            self._passage.lost(now)
        while self._batches:
            self._outcomes.attempt_failed(self._batches.popitem()[1], error, now, maybe=sent)


def _detail(batch: ProducerBatch, part: PartitionResponse) -> str:
    """Where it happened and what the broker said."""
    said = [part.error_message] if part.error_message else []
    for index, text in part.record_errors[:5]:
        if text:
            said.append(f"record {index}: {text}")
    return f"{batch.tp}: {printable('; '.join(said))}" if said else str(batch.tp)
