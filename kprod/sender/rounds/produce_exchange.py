"""One Produce request: the batches of one node, and the matching of its answer to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from kprod.buffer.batch import ProducerBatch
from kprod.cluster.snapshot import Broker, LeaderHint
from kprod.errors import BrokerError, KprodError, ProtocolError
from kprod.sender.exchange import Buffers
from kprod.sender.outcomes import Outcomes
from kprod.types import TopicPartition
from kprod.wire.produce import (
    PartitionBatch,
    PartitionResponse,
    decode_produce_response,
    encode_produce_request,
)
from kprod.wire.versions import ApiKey

log = logging.getLogger(__name__)

LAST_VERSION_BY_NAME = 12  # from 13 on topics are named by id (KIP-516)


class ProduceExchange:
    """Carries the batches until each has a verdict.

    Owns their memory from the first byte to the end.
    """

    api = ApiKey.PRODUCE

    def __init__(
        self,
        outcomes: Outcomes,
        batches: Sequence[ProducerBatch],
        topic_ids: Mapping[str, bytes | None],
        *,
        acks: int,
        timeout_ms: int,
        node_id: int,
        sent_at: float,
    ) -> None:
        self.version_cap = LAST_VERSION_BY_NAME if None in topic_ids.values() else None
        self.expects_response = acks != 0
        self._outcomes = outcomes
        self._batches = {batch.tp: batch for batch in batches}  # those without a verdict yet
        self._topic_ids = topic_ids
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._node_id = node_id
        self._sent_at = sent_at
        self._named: Mapping[int, Broker] = {}  # leaders that the answer tells the addresses of
        self._moved: dict[TopicPartition, LeaderHint] = {}  # what it says of partitions it refuses

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        parts = [
            PartitionBatch(tp.topic, self._topic_ids[tp.topic], tp.partition, batch.records)
            for tp, batch in self._batches.items()
            if batch.records is not None
        ]
        return encode_produce_request(
            version,
            correlation_id,
            client_id,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            batches=parts,
        )

    def answered(self, version: int, body: memoryview, now: float) -> int:
        if not self.expects_response:
            self._outcomes.answered_after(self._node_id, now - self._sent_at, 0)
            while self._batches:
                self._outcomes.stored(self._batches.popitem()[1], -1, -1)
            return 0
        response = decode_produce_response(version, body)
        self._outcomes.answered_after(self._node_id, now - self._sent_at, response.throttle_ms)
        self._named = {broker.node_id: Broker(*broker) for broker in response.brokers}
        names = {topic_id: topic for topic, topic_id in self._topic_ids.items() if topic_id}
        for part in response.partitions:
            topic = part.topic or (names.get(part.topic_id, "") if part.topic_id else "")
            tp = TopicPartition(topic, part.partition)
            batch = self._batches.get(tp)
            if batch is None:
                log.warning("the answer names %s-%d, not asked for", topic, part.partition)
            else:
                self._settle(batch, part, now)
                del self._batches[tp]  # after: what cannot be settled fails with the connection
        self._end_left_out(now)
        if self._moved:
            self._outcomes.leaders_moved(self._moved)
        return response.throttle_ms

    def _end_left_out(self, now: float) -> None:
        while self._batches:
            tp, batch = self._batches.popitem()
            left_out = ProtocolError(f"the broker's answer leaves out {tp}")
            self._outcomes.attempt_failed(batch, left_out, now, maybe=True)

    def _settle(self, batch: ProducerBatch, part: PartitionResponse, now: float) -> None:
        if part.error_code == 0:
            self._outcomes.stored(batch, part.base_offset, part.log_append_time_ms)
            return
        error = BrokerError(part.error_code, _detail(batch, part))
        error.record_errors = {index: _printable(text) for index, text in part.record_errors}
        # With an error, too, a leader tells an offset if it has stored the batch: it lost its
        # office or its disk while replicas were fetching it (Kafka's DelayedProduce).
        stored = part.base_offset >= 0
        if part.leader_id >= 0:
            broker = self._named.get(part.leader_id)
            self._moved[batch.tp] = LeaderHint(part.leader_id, part.leader_epoch, broker)
        self._outcomes.attempt_failed(batch, error, now, maybe=stored)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        while self._batches:
            self._outcomes.attempt_failed(self._batches.popitem()[1], error, now, maybe=sent)


def _detail(batch: ProducerBatch, part: PartitionResponse) -> str:
    """Where it happened and what the broker said, its own text made safe to print."""
    said = [part.error_message] if part.error_message else []
    said += [f"record {index}: {text}" for index, text in part.record_errors[:5] if text]
    printable = _printable("; ".join(said))
    return f"{batch.tp}: {printable}" if printable else str(batch.tp)


def _printable(text: str | None) -> str:
    return "".join(c if c.isprintable() else "?" for c in text or "")[:500]
