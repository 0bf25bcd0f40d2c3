"""Send ready batches, and give every batch its outcome (the core of Kafka's ``Sender``)."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from kprod.buffer.accumulator import RecordAccumulator, Taken
from kprod.buffer.ready_tracker import Ready
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import ClusterSnapshot, LeaderHint
from kprod.errors import BrokerError, ConnectionLost, KprodError, ProtocolError
from kprod.sender.batch_errors import unknown_fate
from kprod.sender.exchange import Buffers
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.sequences import Sequences, Transaction
from kprod.sender.window import Window
from kprod.types import Broker, TopicPartition
from kprod.wire.produce import decode_produce_response, encode_produce_request
from kprod.wire.versions import ApiKey
from kprod_ext.batch import HEADER_BYTES, ProducerBatch
from kprod_ext.peer_text import printable
from kprod_ext.produce import PartitionBatch, PartitionResponse


class LoadWatcher(Protocol):
    """Spreads records by load; the sender's thread measures it once per turn."""

    @property
    def topics(self) -> Container[str]:
        """The topics to measure; others cost nothing."""
        ...

    def measured(
        self, queued: Mapping[str, Mapping[int, int]], waiting: Collection[int], now: float
    ) -> None:
        """Queued batches by topic and partition, and the nodes that could not take ready ones.

        A partition that is not named has no batches queued.
        """
        ...

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing is sent to these topics any more."""
        ...


NOBODY: Mapping[int, Broker] = MappingProxyType({})
LAST_VERSION_BY_NAME = 12  # from 13 on topics are named by id (KIP-516)
LAST_VERSION_WITHOUT_ADDING = 11
"""From 12 on brokers add the partitions of a transaction themselves (KIP-890)."""


class ProduceExchange:
    """Carries the batches until each has a verdict.

    Owns their memory from the first byte to the end. ``sent_at`` is when the request was made, and
    left ``under_way`` bytes of others without an answer.
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
        window: Window,
        under_way: int,
        sent_at: float,
        transaction: Transaction | None = None,
    ) -> None:
        self.version_cap = LAST_VERSION_BY_NAME if None in topic_ids.values() else None
        self._transactional_id = None
        if transaction is not None:
            self._transactional_id = transaction.transactional_id
            if not transaction.implicit:
                self.version_cap = LAST_VERSION_WITHOUT_ADDING
        self.expects_response = acks != 0
        self._outcomes = outcomes
        # The batches without a verdict yet.
        self._batches: dict[tuple[str, int], ProducerBatch] = {}
        self._nbytes = self._records = 0  # of all batches
        for batch in batches:
            self._batches[batch.tp] = batch
            self._nbytes += batch.size
            self._records += batch.record_count
        self._topic_ids = topic_ids
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._node_id = node_id
        self._window = window
        self._sent_at = sent_at
        self._carried = under_way + self._nbytes  # the bytes that arrive before the answer
        self._named: Mapping[int, Broker] = NOBODY  # leaders that the answer tells the addresses of
        # The new leaders that it names for partitions that it refuses.
        self._moved: dict[TopicPartition, LeaderHint] | None = None

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
            self._measured(now, 0)
            while self._batches:
                self._outcomes.stored(self._batches.popitem()[1], -1, -1)
            return 0
        response = decode_produce_response(version, body, len(self._batches), self._records)
        self._measured(now, response.throttle_ms)
        if response.brokers:
            self._named = {broker.node_id: broker for broker in response.brokers}
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
                del self._batches[place]  # last: a batch that is not settled fails with the link
        if unasked:
            self._outcomes.answered_unasked(self._node_id, unasked, now)
        self._end_left_out(now)
        if self._moved is not None:
            self._outcomes.leaders_moved(self._moved)
        return response.throttle_ms

    def _measured(self, now: float, throttle_ms: int) -> None:
        seconds = now - self._sent_at
        self._window.answered(self._nbytes, self._carried, seconds)
        self._outcomes.answered_after(self._node_id, seconds, throttle_ms)

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
        # An error comes with an offset if the leader has stored the batch: it lost the leadership
        # or its disk while replicas fetched the batch (Kafka's DelayedProduce).
        stored = part.base_offset >= 0
        if part.leader_id >= 0:
            broker = self._named.get(part.leader_id)
            if self._moved is None:
                self._moved = {}
            topic_id = self._topic_ids[batch.tp.topic]
            self._moved[batch.tp] = LeaderHint(part.leader_id, part.leader_epoch, broker, topic_id)
        self._outcomes.attempt_failed(batch, error, now, maybe=stored)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        if isinstance(error, ConnectionLost):
            self._window.lost(self._sent_at, now)
        while self._batches:
            self._outcomes.attempt_failed(self._batches.popitem()[1], error, now, maybe=sent)


def _detail(batch: ProducerBatch, part: PartitionResponse) -> str:
    """The partition, and the broker's message."""
    said = [part.error_message] if part.error_message else []
    for index, text in part.record_errors[:5]:
        if text:
            said.append(f"record {index}: {text}")
    return f"{batch.tp}: {printable('; '.join(said))}" if said else str(batch.tp)


FOREVER = float("inf")
PART_OF_TIMEOUT = 0.1
"""Of ``request_timeout_ms``: the time that all bytes under way should take at most, so that they
arrive even when the network becomes ten times slower."""


class ProduceRound:
    """Takes ready batches to their leaders, one request per node and turn.

    ``delivery_timeout`` is seconds, ``request_timeout_ms`` the broker's limit. Thread: the sender's
    only.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        network: Network,
        sequences: Sequences,
        outcomes: Outcomes,
        *,
        request_timeout_ms: int,
        delivery_timeout: float,
        max_request_size: int,
        max_in_flight: int,
        load_watcher: LoadWatcher | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._network = network
        self._sequences = sequences
        self._outcomes = outcomes
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout = delivery_timeout
        self._max_request_size = max_request_size
        self._most_under_way = max_in_flight * max_request_size
        self._windows: dict[int, Window] = {}  # by node
        self._load_watcher = load_watcher
        self._requests = 0
        self._last_request: dict[tuple[int, int], int] = {}  # its number, by node and acks
        self._next_expiry = 0.0
        self._swept: ClusterSnapshot | None = None  # the snapshot of the last look at unused topics

    def run(self, now: float) -> float:
        """Expire, renumber, then send ready batches; seconds until there may be more to do."""
        if now >= self._next_expiry:
            self.expire(now)
        snapshot = self._metadata.snapshot
        if snapshot is not self._swept:
            self._swept = snapshot
            self._forget_unused()
        self._network.follow(snapshot.brokers)  # a hint at a leader may have named a new broker
        ready = self._look(snapshot, now)
        waiting: list[int] = []
        more = False
        if ready.nodes and self._serve(ready.nodes, waiting, snapshot, now):
            # A request takes one batch of each partition; a request that failed changes the queues.
            ready = self._look(snapshot, now)
            more = bool(ready.nodes)
        if ready.leaderless:
            self._metadata.used(ready.leaderless, now)
            self._metadata.request_update()
        watcher = self._load_watcher
        if watcher is not None:
            watcher.measured(self._accumulator.queued(watcher.topics), waiting, now)
        return 0.0 if more else min(ready.next_check, self._next_expiry - now)

    def _look(self, snapshot: ClusterSnapshot, now: float) -> Ready:
        """The batches that could be sent now, under sequence numbers that fit."""
        self._renumber(now)
        changed = self._sequences.take_changed()
        if changed:
            self._accumulator.reopened(changed)
        return self._accumulator.ready(snapshot, now)

    def _serve(
        self,
        nodes: dict[int, list[int]],
        waiting: list[int],
        snapshot: ClusterSnapshot,
        now: float,
    ) -> bool:
        """Make a request for every node that can take one, while ``waiting`` takes the others.

        True when there was one.
        """
        served = False
        for node_id, acks in nodes.items():
            if not self._network.usable(node_id, now) or not self._room(node_id):
                waiting.append(node_id)
            elif self._sequences.identity.producer is not None or not self._sequences.idempotent:
                served = self._send(node_id, acks, snapshot, now) or served
        return served

    def _send(self, node_id: int, asked: list[int], snapshot: ClusterSnapshot, now: float) -> bool:
        """Make one request of batches that may leave; False when none may.

        Batches with another value of ``acks`` need another request, in another turn.
        """
        for acks in asked if len(asked) == 1 else self._longest_unserved(node_id, asked):
            if self._request(node_id, acks, snapshot, now):
                return True
        return False

    def _longest_unserved(self, node_id: int, asked: list[int]) -> list[int]:
        """``asked``, longest unserved first: a busy group would keep others waiting."""
        return sorted(asked, key=lambda acks: self._last_request.get((node_id, acks), 0))

    def _request(self, node_id: int, acks: int, snapshot: ClusterSnapshot, now: float) -> bool:
        """Make a request of batches with equal ``acks``; False when none may leave."""
        window = self._window(node_id)
        under_way = self._network.under_way(node_id)
        most = min(window.room(under_way), self._max_request_size)
        taken = self._accumulator.drain(node_id, acks, self._sequences, most)
        if not taken:
            return False
        self._cut(taken, window.size)
        if taken:
            exchange = self._exchange(node_id, acks, taken, snapshot, under_way, now)
            self._network.send(node_id, exchange, now)
        return True

    def _window(self, node_id: int) -> Window:
        window = self._windows.get(node_id)
        if window is None:
            window = self._windows[node_id] = Window(
                self._accumulator.batch_size,
                self._most_under_way,
                self._request_timeout_ms / 1000 * PART_OF_TIMEOUT,
                partial(self._accumulator.let_grow, node_id),
            )
        return window

    def _room(self, node_id: int) -> int:
        return self._window(node_id).room(self._network.under_way(node_id))

    def _cut(self, taken: Taken, most: int) -> None:
        """Cut batches that are larger than ``most``: they grew while the network carried more.

        A batch with a sequence that a broker may have read stays whole: its parts would be out of
        sequence. A part has at most ``most`` bytes and one record more, at least half of ``most``.
        """
        for entry in list(taken):
            batch, _ = entry
            read = batch.maybe_written and batch.has_sequence
            if batch.size > most and batch.record_count > 1 and not read:
                part = max(1, most // 2, most - batch.max_record_size - HEADER_BYTES)
                self._outcomes.cut(batch, -(-batch.size // part))
                taken.remove(entry)

    def _exchange(
        self,
        node_id: int,
        acks: int,
        taken: Taken,
        snapshot: ClusterSnapshot,
        under_way: int,
        now: float,
    ) -> ProduceExchange:
        batches: list[ProducerBatch] = []
        topic_ids: dict[str, bytes | None] = {}
        for batch, leader in taken:
            batch.attempt(now, leader)
            self._outcomes.left(batch)
            batches.append(batch)
            topic = batch.tp.topic
            if topic not in topic_ids:
                topic_ids[topic] = snapshot.topic_id(topic)
        self._metadata.used(topic_ids, now)
        self._requests += 1
        self._last_request[node_id, acks] = self._requests
        return ProduceExchange(
            self._outcomes,
            batches,
            topic_ids,
            acks,
            self._request_timeout_ms,
            node_id,
            self._window(node_id),
            under_way,
            now,
            self._sequences.transaction,
        )

    def _renumber(self, now: float) -> None:
        """Let partitions go on under a new epoch after a refused sequence."""
        for batch in self._sequences.resequence():
            self._accumulator.remove(batch)
            self._outcomes.give_up(batch, unknown_fate(batch), now)

    def _forget_unused(self) -> None:
        """Forget topics that the metadata has dropped; topics with batches later."""
        unused = self._metadata.dropped
        if not unused:
            return
        unused -= self._outcomes.busy_topics()
        partitions, used = self._accumulator.forget(unused)
        unused -= used
        self._sequences.forget(partitions)
        self._outcomes.forget(unused)
        if self._load_watcher is not None:
            self._load_watcher.forget(unused)
        self._metadata.forgotten(unused)

    def expire(self, now: float) -> None:
        """End every batch, queued or on the wire, that is older than the delivery timeout."""
        if now < self._next_expiry:
            return
        limit = self._delivery_timeout
        late = self._outcomes.unanswered(now - limit) + self._accumulator.take_expired(now - limit)
        for batch in sorted(late, key=_age):
            self._outcomes.expire(batch, limit, now)
        oldest = min(self._accumulator.oldest_creation(), self._outcomes.oldest_unanswered(), now)
        self._next_expiry = max(oldest + limit, now + 0.001)

    def fail_queued(self, error: KprodError, now: float) -> None:
        """End all queued batches: nothing will be sent any more."""
        for batch in self._accumulator.take_all():
            self._outcomes.give_up(batch, error, now)

    def purge(self, error: KprodError, now: float, *, queued: bool, in_flight: bool) -> None:
        """End in ``error`` the queued batches, those in flight, or both."""
        given_up = self._outcomes.unanswered() if in_flight else []
        if queued:
            given_up += self._accumulator.take_all()
        self.end(sorted(given_up, key=_age), error, now)

    def withdraw(self) -> list[ProducerBatch]:
        """Empty the queues; all batches without an outcome, those in flight included."""
        return sorted(self._outcomes.unanswered() + self._accumulator.take_all(), key=_age)

    def end(self, batches: list[ProducerBatch], error: KprodError, now: float) -> None:
        """End withdrawn ``batches`` in ``error``."""
        for batch in batches:
            self._outcomes.end(batch, error, now)

    def free(self) -> None:
        """Free the memory of all batches, after the end."""
        self._outcomes.free()


def _age(batch: ProducerBatch) -> tuple[float, tuple[float, ...]]:
    """A sort key: the order of ``send`` in a partition; batches that were never taken come last."""
    return batch.created_at, batch.drain_order or (FOREVER,)
