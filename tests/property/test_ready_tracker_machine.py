"""What the sender is told to look at is what a walk over all queues would find."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from kprod.buffer.accumulator import QueueSettings
from kprod.buffer.ready_tracker import ReadyTracker
from kprod.cluster.snapshot import ClusterSnapshot, PartitionInfo, Partitions, TopicInfo
from kprod.types import Broker, TopicPartition
from kprod_ext import BufferPool
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue
from tests.support.partition_queues import new_context

FOREVER = float("inf")
BATCH = 200
NODES = (1, 2)
TOPICS = {"slow": QueueSettings(linger=5.0), "fast": QueueSettings(linger=0.0, acks=1)}
PARTITIONS = 3

places = st.tuples(st.sampled_from(sorted(TOPICS)), st.integers(0, PARTITIONS - 1))
leaders = st.lists(st.sampled_from([*NODES, -1]), min_size=PARTITIONS, max_size=PARTITIONS)


def cluster(numbers: list[int], epoch: int) -> ClusterSnapshot:
    """Every topic has the same leaders; -1 is nobody."""
    partitions = Partitions.of(PartitionInfo(n, leader, epoch) for n, leader in enumerate(numbers))
    brokers = {node: Broker(node, f"broker-{node}", 9092) for node in NODES}
    return ClusterSnapshot(brokers, {name: TopicInfo(name, None, partitions) for name in TOPICS})


class ReadyTrackerMachine(RuleBasedStateMachine):
    """One producer's queues; callers and the sender take turns."""

    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.epoch = 0
        self.snapshot = cluster([1] * PARTITIONS, 0)
        self.hurry = False
        self.ready_tracker = ReadyTracker()
        self.context = new_context(
            BATCH,
            pool=BufferPool(1_000_000, BATCH),
            now=lambda: self.now,
            note=self.ready_tracker.noted.append,
            hurry=self.ready_tracker.note,
        )
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.gate: set[TopicPartition] = set()  # those it does not let pass

    # What callers do ------------------------------------------------------------------------------

    @rule(place=places, size=st.integers(0, BATCH))
    def append(self, place: tuple[str, int], size: int) -> None:
        tp = TopicPartition(*place)
        queue = self.queues.get(tp)
        if queue is None:
            queue = self.queues[tp] = PartitionQueue(self.context, tp, TOPICS[tp.topic])
        assert queue.append(1, None, bytes(size), ()) is not None

    @rule(place=places)
    def wait_for_the_oldest(self, place: tuple[str, int]) -> None:
        queue = self.queues.get(TopicPartition(*place))
        if queue is not None and queue.oldest is not None:
            queue.oldest.delivery.wait(0)

    @rule(hurry=st.booleans())
    def flush(self, hurry: bool) -> None:
        self.hurry = hurry

    # What becomes of it ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(numbers=leaders, elected=st.booleans())
    def leaders_change(self, numbers: list[int], elected: bool) -> None:
        self.epoch += elected
        self.snapshot = cluster(numbers, self.epoch)

    @rule(place=places)
    def the_gate_closes(self, place: tuple[str, int]) -> None:
        self.gate.add(TopicPartition(*place))

    @rule(place=places)
    def the_gate_opens(self, place: tuple[str, int]) -> None:
        tp = TopicPartition(*place)
        self.gate.discard(tp)
        if tp in self.queues:
            self.ready_tracker.reopened(self.queues[tp])

    # What the sender does -------------------------------------------------------------------------

    @rule(target=taken, node=st.sampled_from(NODES), acks=st.sampled_from([-1, 1]))
    def serve(self, node: int, acks: int) -> list[ProducerBatch]:
        self.ready_tracker.look(self.snapshot, self.now)
        gone: list[ProducerBatch] = []
        for queue in self._at(node, acks):
            if queue.tp in self.gate:
                self.ready_tracker.hold_back(queue)
                continue
            batch = queue.take_head()
            batch.attempt(self.now, queue.leader)
            self.ready_tracker.note_anew(queue)
            gone.append(batch)
        return gone

    @rule(batches=consumes(taken), back_off=st.sampled_from([0.0, 1.0, 20.0]))
    def an_attempt_fails(self, batches: list[ProducerBatch], back_off: float) -> None:
        for batch in batches:
            batch.retry_at = self.now + back_off
            queue = self.queues[batch.tp]
            queue.put_back(batch)
            self.ready_tracker.note_anew(queue)

    @rule(age=st.sampled_from([0.0, 3.0, 31.0]))
    def the_old_ones_expire(self, age: float) -> None:
        limit = self.now - age
        waiting = {q.tp for q in self.queues.values() if q.oldest and q.oldest.created_at <= limit}
        assert {batch.tp for batch in self.ready_tracker.take_older(limit)} == waiting
        assert all(q.oldest is None or q.oldest.created_at > limit for q in self.queues.values())

    @rule()
    def everything_ends(self) -> None:
        depth = sum(queue.depth for queue in self.queues.values())
        assert len(self.ready_tracker.take_all()) == depth
        assert not any(queue.depth for queue in self.queues.values())

    # What a walk over all of them finds -----------------------------------------------------------

    @invariant()
    def every_look_sees_what_a_walk_would_see(self) -> None:
        self.ready_tracker.look(self.snapshot, self.now)
        due: dict[tuple[int, int], set[TopicPartition]] = {}
        later = [FOREVER]
        leaderless = set()
        depths: dict[str, dict[int, int]] = {}
        for queue in self.queues.values():
            batch, full = queue.head()
            if batch is None:
                continue
            leader = self.snapshot.leadership(queue.tp)
            if leader is None:
                leaderless.add(queue.tp.topic)
                continue
            depths.setdefault(queue.tp.topic, {})[queue.tp.partition] = queue.depth
            if batch.attempts:
                moved = batch.attempted_leader != leader
                when = self.now if moved else batch.retry_at
            else:
                at_once = self.hurry or full or batch.delivery.awaited
                when = self.now if at_once else batch.created_at + queue.settings.linger
            if queue.tp in self.gate:
                continue
            if when <= self.now:
                due.setdefault((leader.leader_id, queue.settings.acks), set()).add(queue.tp)
            else:
                later.append(when)
        assert self._seen() == due
        assert self.now < self.ready_tracker.next_look() <= min(later)
        assert self.ready_tracker.leaderless() == leaderless
        assert self.ready_tracker.depths.of(TOPICS) == depths

    def _at(self, node: int, acks: int) -> list[PartitionQueue]:
        return [queue for place in self.ready_tracker.at(node, acks, self.hurry) for queue in place]

    def _seen(self) -> dict[tuple[int, int], set[TopicPartition]]:
        seen: dict[tuple[int, int], set[TopicPartition]] = {}
        for node, asked in self.ready_tracker.node_queues(self.hurry).items():
            for acks in asked:
                queues = self._at(node, acks)
                assert len(set(queues)) == len(queues)
                here = {queue.tp for queue in queues} - self.gate
                if here:
                    seen[node, acks] = here
        return seen

    @invariant()
    def the_oldest_is_known(self) -> None:
        created = [q.oldest.created_at for q in self.queues.values() if q.oldest is not None]
        assert self.ready_tracker.oldest() == min(created, default=FOREVER)


ReadyTrackerMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestAttention = ReadyTrackerMachine.TestCase
