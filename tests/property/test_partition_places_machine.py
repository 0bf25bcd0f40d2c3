"""Every partition stands where a walk over all of them would put it, whatever happened before."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from kprod.buffer.accumulator import QueueSettings, RecordAccumulator
from kprod.cluster.snapshot import ClusterSnapshot, PartitionInfo, Partitions, TopicInfo
from kprod.errors import BrokerError
from kprod.sender.partition import LEADERLESS
from kprod.types import Broker, TopicPartition
from kprod_ext import BufferPool
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue
from tests.support.fake_clock import FakeClock
from tests.support.tier import examples
from tests.unit.buffer.accumulating import Shut, partitions_of

BATCH = 200
TIMEOUT = 31.0
NODES = (1, 2)
TOPICS = {"slow": QueueSettings(linger=5.0), "fast": QueueSettings(linger=0.0, acks=1)}
PARTITIONS = 3
REFUSED = BrokerError(7)

places = st.tuples(st.sampled_from(sorted(TOPICS)), st.integers(0, PARTITIONS - 1))
leaders = st.lists(st.sampled_from([*NODES, -1]), min_size=PARTITIONS, max_size=PARTITIONS)


def cluster(numbers: list[int], epoch: int) -> ClusterSnapshot:
    """Every topic has the same leaders; -1 is nobody."""
    partitions = Partitions.of(PartitionInfo(n, leader, epoch) for n, leader in enumerate(numbers))
    brokers = {node: Broker(node, f"broker-{node}", 9092) for node in NODES}
    return ClusterSnapshot(brokers, {name: TopicInfo(name, None, partitions) for name in TOPICS})


class PlacesMachine(RuleBasedStateMachine):
    """One producer's partitions; callers and the sender take turns."""

    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.epoch = 0
        self.snapshot = cluster([1] * PARTITIONS, 0)
        self.flushes = False
        self.accumulator = RecordAccumulator(
            BufferPool(1_000_000, BATCH),
            clock=self.clock,
            batch_size=BATCH,
            settings=TOPICS.__getitem__,
            wake=lambda: None,
        )
        self.gate = Shut()
        self.partitions = partitions_of(
            self.accumulator, self.clock, least=BATCH, max_in_flight=2, delivery_timeout=TIMEOUT
        )
        self.partitions.transaction = cast(Any, self.gate)
        self.deadlines = self.partitions.deadlines
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.hastened: set[ProducerBatch] = set()  # those that a flush has made ready

    # What callers do ------------------------------------------------------------------------------

    @rule(place=places, size=st.integers(0, BATCH))
    def append(self, place: tuple[str, int], size: int) -> None:
        tp = TopicPartition(*place)
        self.accumulator.append(tp, 1, None, bytes(size), (), 0)
        self.queues[tp] = self.accumulator.partition_queue(tp)

    @rule(place=places)
    def wait_for_the_oldest(self, place: tuple[str, int]) -> None:
        queue = self.queues.get(TopicPartition(*place))
        if queue is not None and queue.oldest is not None:
            queue.oldest.delivery.wait(0)

    @rule()
    def flush(self) -> None:
        if self.flushes:
            self.accumulator.flushes.discard(None)
        else:
            self.accumulator.flushes.add(None)
        self.flushes = not self.flushes

    # What becomes of it ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.deadlines.fire(self.clock.now)

    @rule(numbers=leaders, elected=st.booleans())
    def leaders_change(self, numbers: list[int], elected: bool) -> None:
        self.epoch += elected
        before, self.snapshot = self.snapshot, cluster(numbers, self.epoch)
        moved = {tp for tp in self.queues if before.leadership(tp) != self.snapshot.leadership(tp)}
        self.hastened = {batch for batch in self.hastened if batch.tp not in moved}

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def the_gate_closes(self, partition: int) -> None:
        self.gate.shut.add(partition)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def the_gate_opens(self, partition: int) -> None:
        self.gate.shut.discard(partition)
        self.partitions.reopen([TopicPartition(topic, partition) for topic in TOPICS])

    # What the sender does -------------------------------------------------------------------------

    @rule(target=taken, most=st.sampled_from([1, 100_000]))
    def serve(self, most: int) -> list[ProducerBatch]:
        self.look()
        gone: list[ProducerBatch] = []
        for broker in list(self.partitions.ready)[:1]:
            gone = self.partitions.drain(broker, most, self.clock.now)
            assert len({batch.partition.queue.acks for batch in gone}) < 2
            for batch in gone:
                batch.partition.begin_attempt(batch, self.clock.now)
        return gone

    @rule(batches=consumes(taken))
    def an_attempt_fails(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            batch.partition.attempt_failed(batch, REFUSED, self.clock.now)
        self.deadlines.fire(self.clock.now)

    @rule(batches=consumes(taken))
    def batches_are_acknowledged(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            batch.partition.stored(batch, -1, -1, self.clock.now)

    @rule()
    def everything_queued_ends(self) -> None:
        depth = sum(queue.depth for queue in self.queues.values())
        ended = self.partitions.take_queued(self.clock.now)
        assert len(ended) == depth
        assert not any(queue.depth for queue in self.queues.values())
        for batch in ended:
            batch.partition.give_up(batch, REFUSED, self.clock.now)

    # What a walk over all of them finds -----------------------------------------------------------

    def look(self) -> None:
        self.partitions.network.adopt(self.snapshot.brokers)
        self.partitions.look(self.snapshot, self.clock.now)
        if self.flushes:
            self.hastened.update(queue.oldest for queue in self.queues.values() if queue.oldest)

    @invariant()
    def every_look_sees_what_a_walk_would_see(self) -> None:
        self.look()
        now = self.clock.now
        ready: dict[int, set[TopicPartition]] = {}
        leaderless: set[TopicPartition] = set()
        depths: dict[str, dict[int, int]] = {topic: {} for topic in TOPICS}
        for tp, queue in self.queues.items():
            batch, full = queue.head()
            if batch is None:
                continue
            assert now < batch.created_at + TIMEOUT
            times = [batch.created_at + TIMEOUT]
            depths[tp.topic][tp.partition] = queue.depth
            leader = self.snapshot.leadership(tp)
            if leader is None:
                leaderless.add(tp)
            else:
                if batch.attempts:
                    when = now if batch.attempted_leader != leader else batch.retry_at
                else:
                    at_once = full or batch.delivery.awaited or batch in self.hastened
                    when = now if at_once else batch.created_at + queue.settings.linger
                if when > now:
                    times.append(when)
                elif queue.partition.may_send(batch, now):
                    ready.setdefault(leader.leader_id, set()).add(tp)
            assert now < self.deadlines.first <= min(times)
        assert self._seen() == ready
        placed = {tp: queue.partition.place for tp, queue in self.queues.items() if queue.partition}
        assert {tp for tp, place in placed.items() if place is LEADERLESS} == leaderless
        assert {topic: self.partitions.depths(topic) for topic in TOPICS} == depths

    def _seen(self) -> dict[int, set[TopicPartition]]:
        seen: dict[int, set[TopicPartition]] = {}
        for broker in self.partitions.ready:
            assert broker.ready
            here = set()
            for partition in broker.ready:
                oldest = partition.queue.oldest
                assert oldest is not None
                if partition.may_send(oldest, self.clock.now):
                    here.add(partition.tp)
            if here:
                seen[broker.address.node_id] = here
        return seen


PlacesMachine.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=40)
TestPlaces = PlacesMachine.TestCase
