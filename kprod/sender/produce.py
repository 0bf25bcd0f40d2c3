"""Send ready batches, and give every batch its outcome (the core of Kafka's ``Sender``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from kprod.cluster.snapshot import ClusterSnapshot, LeaderHint
from kprod.errors import BrokerError, ConnectionLost, KprodError, ProtocolError
from kprod.sender.broker import Broker
from kprod.sender.exchange import Buffers, Exchange
from kprod.sender.network import Network
from kprod.sender.outcomes import Outcomes
from kprod.sender.partition import Partition
from kprod.sender.partitions import PartitionSet, RequestGroup
from kprod.sender.retry import unknown_fate
from kprod.types import Broker as Address
from kprod.types import TopicPartition
from kprod.wire.produce import Topics, decode_produce_response, encode_produce_request
from kprod.wire.versions import ApiKey
from kprod_ext.batch import HEADER_BYTES, ProducerBatch
from kprod_ext.peer_text import printable
from kprod_ext.produce import PartitionResponse


class LoadWatcher(Protocol):
    """Spreads records by load."""

    def watch(self, partitions: PartitionSet) -> None:
        """The queues are those of ``partitions``; called once."""
        ...

    def waiting(self, nodes: Collection[int], now: float) -> None:
        """The nodes that could not take what is ready for them, in each iteration with some."""
        ...

    def forget(self, topics: Iterable[str]) -> None:
        """Nothing is sent to these topics any more."""
        ...


NO_BROKERS: Mapping[int, Address] = MappingProxyType({})
LAST_VERSION_BY_NAME = 12  # from 13 on topics are named by id (KIP-516)
LAST_VERSION_WITHOUT_ADDING = 11
"""From 12 on brokers add the partitions of a transaction themselves (KIP-890)."""


class ProduceExchange(Exchange):
    """Carries the batches until each has a verdict.

    Owns their memory from the first byte to the end. ``sent_at`` is when the request was made.
    ``topics``: their names, by id or, if that is not known, by name.
    """

    api = ApiKey.PRODUCE

    _transactional_id: str | None = None
    _named: Mapping[int, Address] = NO_BROKERS
    """The leaders whose addresses the answer names."""
    _moved: dict[TopicPartition, LeaderHint] | None = None
    """The new leaders that it names for partitions that it refuses."""

    def __init__(
        self,
        outcomes: Outcomes,
        group: RequestGroup,
        batches: list[ProducerBatch],
        timeout_ms: int,
        sent_at: float,
    ) -> None:
        if not group.acks:
            self.expects_response = False
        self._outcomes = outcomes
        self._group = group
        self._timeout_ms = timeout_ms
        self._sent_at = sent_at
        # The batches without a verdict yet.
        self._batches: dict[tuple[str, int], ProducerBatch] = {}
        topics: dict[bytes | str | None, str] = {}
        self.topics = topics
        nbytes = records = 0
        for batch in batches:
            partition: Partition = batch.partition
            partition.sent(batch, sent_at)
            tp = partition.tp
            self._batches[tp] = batch
            topic, topic_id = tp.topic, batch.attempted_leader.topic_id
            if topic_id is None:
                self.version_cap = LAST_VERSION_BY_NAME
            topics[topic_id or topic] = topic
            nbytes += batch.size
            records += batch.record_count
        self._nbytes, self._records = nbytes, records
        group.window.in_flight += nbytes
        transaction = outcomes.partitions.transaction
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
            self._group.acks,
            self._timeout_ms,
            topics,
            self._transactional_id,
        )

    def answered(self, version: int, body: memoryview, now: float) -> int:
        if not self.expects_response:
            return self._taken(now)
        outcomes, batches = self._outcomes, self._batches
        response = decode_produce_response(version, body, len(batches), self._records)
        self._ended_well(now, response.throttle_ms)
        if response.brokers:
            self._named = {broker.node_id: broker for broker in response.brokers}
        unasked = ""
        for part in response.partitions:
            topic = part.topic or self.topics.get(part.topic_id, "")
            place = topic, part.partition
            batch = batches.get(place)
            if batch is None:
                unasked = unasked or f"{topic}-{part.partition}"
                continue
            if part.error_code:
                self._refused(batch, part, now)
            else:
                outcomes.stored(batch, part.base_offset, part.log_append_time_ms)
            del batches[place]  # last: a batch that is not settled fails with the link
        if unasked:
            what = f"broker {self._group.node_id} answers for partitions that were not asked for"
            outcomes.log.seldom(what, f"{what}, {unasked} among them", now)
        if batches:
            self._end_left_out(now)
        if self._moved is not None:
            outcomes.metadata.take_leader_hints(self._moved)
        return response.throttle_ms

    def _ended_well(self, now: float, throttle_ms: int) -> None:
        seconds, group = now - self._sent_at, self._group
        group.window.answered(self._nbytes, seconds)
        self._outcomes.metrics.answered(group.node_id, seconds, throttle_ms)
        if throttle_ms:
            self._outcomes.metadata.throttled(group.node_id, throttle_ms)

    def _taken(self, now: float) -> int:
        """The socket has taken a request that gets no response; its ``throttle_time_ms``: none."""
        self._ended_well(now, 0)
        while self._batches:
            self._outcomes.stored(self._batches.popitem()[1], -1, -1)
        return 0

    def _end_left_out(self, now: float) -> None:
        while self._batches:
            _, batch = self._batches.popitem()
            left_out = ProtocolError(f"the broker's answer leaves out {batch.tp}")
            self._outcomes.attempt_failed(batch, left_out, now, maybe=True)

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
        self._outcomes.attempt_failed(batch, error, now, maybe=stored)

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        lost = isinstance(error, ConnectionLost)
        self._group.window.failed(self._nbytes, self._sent_at, now, lost=lost)
        while self._batches:
            self._outcomes.attempt_failed(self._batches.popitem()[1], error, now, maybe=sent)


def _detail(batch: ProducerBatch, part: PartitionResponse) -> str:
    """The partition, and the broker's message."""
    said = [part.error_message] if part.error_message else []
    for index, text in part.record_errors[:5]:
        if text:
            said.append(f"record {index}: {text}")
    return f"{batch.tp}: {printable('; '.join(said))}" if said else str(batch.tp)


class ProduceRequests:
    """Takes ready batches to their leaders, one request per group and iteration.

    ``request_timeout_ms`` is the broker's limit. Thread: the sender's only.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        network: Network,
        *,
        request_timeout_ms: int,
        max_request_size: int,
        load_watcher: LoadWatcher | None = None,
    ) -> None:
        self._outcomes = outcomes
        self._partitions = outcomes.partitions
        self._memory = outcomes.partitions.accumulator.pool.total
        self._metadata = outcomes.metadata
        self._network = network
        self._request_timeout_ms = request_timeout_ms
        self._max_request_size = max_request_size
        self._load_watcher = load_watcher
        self._full: list[int] = []  # the nodes that could take nothing
        self._snapshot: ClusterSnapshot | None = None  # that of the last iteration

    def run(self, now: float) -> bool:
        """Renumber, then send ready batches; True when there may be more to send at once."""
        snapshot, partitions = self._metadata.snapshot, self._partitions
        if snapshot is not self._snapshot:
            self._follow(snapshot)
        if partitions.awaiting_epoch:
            self._renumber(now)
        partitions.look(snapshot, now)
        more = bool(partitions.groups or self._full) and self._serve(now)
        if partitions.leaderless:
            self._metadata.used(partitions.leaderless, now)
            self._metadata.request_update()
        return more

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        """Metadata has changed, or a hint at a leader, which may have named a new broker."""
        self._snapshot = snapshot
        self._forget_unused()
        self._network.adopt(snapshot.brokers)

    def _serve(self, now: float) -> bool:
        """Make a request for every group whose node can take one; True when there is more for one.

        Who was served is last in the next iteration: a busy group must not keep others waiting.
        """
        partitions = self._partitions
        no_id = partitions.idempotent and partitions.identity.producer is None
        more = False
        full: list[int] = []
        for group in list(partitions.groups):
            node_id, window = group.node_id, group.window
            broker = self._network.usable(node_id, now)
            if broker is None or (window.limits and not window.room()):
                if node_id not in full:
                    full.append(node_id)
            elif not no_id and self._request(broker, group, now) and group.ready:
                del partitions.groups[group]
                partitions.groups[group] = None
                more = True
        if self._load_watcher is not None and (full or self._full):
            self._full = full
            self._load_watcher.waiting(full, now)
        return more

    def _request(self, broker: Broker, group: RequestGroup, now: float) -> bool:
        """Make a request of batches with equal ``acks``; False when none may leave."""
        window, most = group.window, self._max_request_size
        if window.limits:
            most = min(window.room(), most)
        taken = group.drain(most, self._memory, now)
        if not taken:
            return False
        for batch in taken:
            if batch.size > window.size:
                self._cut(taken, window.size, now)
                break
        if not taken:  # all were cut
            return True
        request = ProduceExchange(self._outcomes, group, taken, self._request_timeout_ms, now)
        self._metadata.used(request.topics.values(), now)
        broker.send(request, now)
        return True

    def _cut(self, taken: list[ProducerBatch], most: int, now: float) -> None:
        """Cut batches that are larger than ``most``: they grew while the network carried more.

        A batch with a sequence that a broker may have read stays whole: its parts would be out of
        sequence. A part has at most ``most`` bytes and one record more, at least half of ``most``.
        """
        for batch in list(taken):
            read = batch.maybe_written and batch.has_sequence
            if batch.size > most and batch.record_count > 1 and not read:
                part = max(1, most // 2, most - batch.max_record_size - HEADER_BYTES)
                self._outcomes.cut(batch, -(-batch.size // part), now)
                taken.remove(batch)

    def _renumber(self, now: float) -> None:
        """Let partitions go on under a new epoch after a refused sequence."""
        for batch in self._partitions.renumber(now):
            self._outcomes.give_up(batch, unknown_fate(batch), now)

    def _forget_unused(self) -> None:
        """Forget topics that the metadata has dropped; topics with batches later."""
        unused = self._metadata.dropped
        if not unused:
            return
        unused -= self._outcomes.busy_topics()
        unused -= self._partitions.forget(unused)
        self._outcomes.metrics.forget(unused)
        if self._load_watcher is not None:
            self._load_watcher.forget(unused)
        self._metadata.forgotten(unused)
