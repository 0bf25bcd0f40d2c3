"""Produce requests, and what their answers mean for the batches."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kprod.cluster.snapshot import LeaderHint
from kprod.errors import BrokerError, ConnectionLost, KprodError, ProtocolError
from kprod.sender.broker import Broker
from kprod.sender.connection import Buffers, Exchange
from kprod.sender.partition import Partition
from kprod.types import Broker as Address
from kprod.types import TopicPartition
from kprod.wire.produce import Topics, decode_produce_response, encode_produce_request
from kprod.wire.versions import ApiKey
from kprod_ext.batch import ProducerBatch
from kprod_ext.peer_text import printable
from kprod_ext.produce import PartitionResponse

if TYPE_CHECKING:
    from kprod.sender.partitions import PartitionSet


NO_BROKERS: Mapping[int, Address] = MappingProxyType({})
LAST_VERSION_BY_NAME = 12  # from 13 on topics are named by id (KIP-516)
LAST_VERSION_WITHOUT_ADDING = 11
"""From version 12, brokers add the partitions of a transaction themselves (KIP-890)."""


class ProduceExchange(Exchange):
    """A Produce request. It holds its batches until each has a verdict.

    The memory of the batches belongs to the request until it ends. ``sent_at`` is when the request
    was made. ``topics``: the topic names, by id or, if the id is unknown, by name.
    """

    api = ApiKey.PRODUCE

    _transactional_id: str | None = None
    _named: Mapping[int, Address] = NO_BROKERS
    """The leaders whose addresses the answer contains."""
    _moved: dict[TopicPartition, LeaderHint] | None = None
    """The new leaders that the answer names for partitions that it refuses."""

    def __init__(
        self,
        partitions: PartitionSet,
        broker: Broker,
        batches: list[ProducerBatch],
        timeout_ms: int,
        sent_at: float,
    ) -> None:
        self._acks: int = batches[0].partition.queue.acks
        if not self._acks:
            self.expects_response = False
        self._partitions = partitions
        self._broker = broker
        self._timeout_ms = timeout_ms
        self._sent_at = sent_at
        # The batches without a verdict yet.
        self._batches: dict[tuple[str, int], ProducerBatch] = {}
        topics: dict[bytes | None, str] = {}
        self.topics = topics
        nbytes = records = 0
        for batch in batches:
            partition: Partition = batch.partition
            partition.begin_attempt(batch, sent_at)
            tp = partition.tp
            self._batches[tp] = batch
            topic, topic_id = tp.topic, batch.attempted_leader.topic_id
            if topic_id is None:
                self.version_cap = LAST_VERSION_BY_NAME
            else:
                topics[topic_id] = topic
            nbytes += batch.size
            records += batch.record_count
        self._nbytes, self._records = nbytes, records
        broker.window.in_flight += nbytes
        transaction = partitions.transaction
        if transaction is not None:
            self._transactional_id = transaction.transactional_id
            if not transaction.implicit:
                self.version_cap = LAST_VERSION_WITHOUT_ADDING

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        by_id = version > LAST_VERSION_BY_NAME
        topics: Topics = {}
        for (topic, partition), batch in self._batches.items():
            name = batch.attempted_leader.topic_id if by_id else topic
            records = batch.records
            if records is None:
                raise AssertionError(f"{batch!r} has no bytes")
            topics.setdefault(name, []).append((partition, records))
        return encode_produce_request(
            version,
            correlation_id,
            client_id,
            self._acks,
            self._timeout_ms,
            topics,
            self._transactional_id,
        )

    def answered(self, version: int, body: memoryview, now: float) -> int:
        if not self.expects_response:
            return self._taken(now)
        partitions, batches = self._partitions, self._batches
        results, throttle_ms, brokers = decode_produce_response(
            version, body, len(batches), self._records
        )
        self._ended_well(now, throttle_ms)
        if brokers:
            self._named = {broker.node_id: broker for broker in brokers}
        unasked = ""
        for part in results:
            topic = part.topic or self.topics.get(part.topic_id, "")
            at = topic, part.partition
            batch = batches.get(at)
            if batch is None:
                unasked = unasked or f"{topic}-{part.partition}"
                continue
            if part.error_code:
                self._refused(batch, part, now)
            else:
                batch.partition.stored(batch, part.base_offset, part.log_append_time_ms, now)
            del batches[at]  # last: a batch that is not settled fails with the connection
        if unasked:
            node_id = self._broker.address.node_id
            what = f"broker {node_id} answers for partitions that were not asked for"
            partitions.network.log.seldom(what, f"{what}, {unasked} among them", now)
        if batches:
            self._end_left_out(now)
        if self._moved is not None:
            partitions.metadata.take_leader_hints(self._moved)
        return throttle_ms

    def _ended_well(self, now: float, throttle_ms: int) -> None:
        seconds, node_id = now - self._sent_at, self._broker.address.node_id
        self._broker.window.answered(self._nbytes, seconds)
        self._partitions.metrics.answered(node_id, seconds, throttle_ms)
        if throttle_ms:
            self._partitions.metadata.throttled(node_id, throttle_ms)

    def _taken(self, now: float) -> int:
        """The socket has taken a request without a response.

        Returns 0 as its ``throttle_time_ms``.
        """
        self._ended_well(now, 0)
        while self._batches:
            _, batch = self._batches.popitem()
            batch.partition.stored(batch, -1, -1, now)
        return 0

    def _end_left_out(self, now: float) -> None:
        while self._batches:
            _, batch = self._batches.popitem()
            left_out = ProtocolError(f"the broker's answer leaves out {batch.tp}")
            batch.partition.attempt_failed(batch, left_out, now, maybe=True)

    def _refused(self, batch: ProducerBatch, part: PartitionResponse, now: float) -> None:
        error = BrokerError(part.error_code, _detail(batch, part))
        error.record_errors = dict(part.record_errors)
        # An error comes with an offset if the leader has stored the batch: it lost the leadership
        # or its disk while replicas fetched the batch (Kafka's DelayedProduce).
        stored = part.base_offset >= 0
        if part.leader_id >= 0:
            broker = self._named.get(part.leader_id)
            if self._moved is None:
                self._moved = {}
            topic_id = batch.attempted_leader.topic_id
            self._moved[batch.tp] = LeaderHint(part.leader_id, part.leader_epoch, broker, topic_id)
        batch.partition.attempt_failed(batch, error, now, maybe=stored)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        lost = isinstance(error, ConnectionLost)
        self._broker.window.failed(self._nbytes, self._sent_at, now, lost=lost)
        while self._batches:
            _, batch = self._batches.popitem()
            batch.partition.attempt_failed(batch, error, now, maybe=sent)


def _detail(batch: ProducerBatch, part: PartitionResponse) -> str:
    """The partition, and the broker's message."""
    said = [part.error_message] if part.error_message else []
    for index, text in part.record_errors[:5]:
        if text:
            said.append(f"record {index}: {text}")
    return f"{batch.tp}: {printable('; '.join(said))}" if said else str(batch.tp)
