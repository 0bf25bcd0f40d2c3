"""The queues that the sender has to look at, and the place of every other queue.

Kafka's ``RecordAccumulator.ready`` walks every partition in every turn. Here a queue is looked at
only after something happened to it: a batch was opened or filled, somebody waits for one, its time
has come, the sender itself put a batch back or took one out, the gate opened, or leaders changed.
Then it is put where it belongs until something happens again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping

from kprod.buffer.timers import Timers
from kprod.cluster.snapshot import ClusterSnapshot, Leadership
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue

FOREVER = float("inf")
AT_ONCE = -FOREVER


class QueueDepths:
    """The number of queued batches by topic and partition. Thread: the sender's only.

    A mapping that ``of`` has returned never changes. It names a topic from the first call on that
    has the topic in ``measured`` and comes after a change of one of the topic's queues.
    """

    __slots__ = ("_changed", "_known", "_told")

    def __init__(self) -> None:
        self._known: dict[str, dict[int, int]] = {}
        self._changed: dict[str, None] = {}
        self._told: Mapping[str, Mapping[int, int]] = {}

    def see(self, queue: PartitionQueue) -> None:
        """Count the batches of ``queue``, which has at least one."""
        topic, partition = queue.tp
        depths = self._known.get(topic)
        if depths is None:
            depths = self._known[topic] = {}
        depth = queue.depth
        if depths.get(partition) != depth:
            depths[partition] = depth
            self._changed[topic] = None

    def forget(self, queue: PartitionQueue) -> None:
        """``queue`` has no batches, or its partition has no leader."""
        topic, partition = queue.tp
        depths = self._known.get(topic)
        if depths is not None and depths.pop(partition, None) is not None:
            self._changed[topic] = None

    def forget_topic(self, topic: str) -> None:
        """No queue of ``topic`` has batches: keep no place to count them."""
        if not self._known.get(topic, True):
            del self._known[topic]

    def trim(self) -> None:
        """Free the room that the dict keeps for forgotten topics."""
        self._known = dict(self._known)

    def of(self, measured: Container[str]) -> Mapping[str, Mapping[int, int]]:
        """Batches by topic and partition; empty queues and topics are not named.

        The same object as before when nothing has changed.
        """
        if self._changed:
            changed = [
                topic
                for topic in self._changed
                if topic in measured and (self._known.get(topic) or None) != self._told.get(topic)
            ]
            if changed:
                self._told = self._told_anew(changed)
            self._changed.clear()
        return self._told

    def _told_anew(self, changed: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
        told = dict(self._told)
        for topic in changed:
            depths = self._known.get(topic)
            if depths:
                told[topic] = dict(depths)
            else:
                told.pop(topic, None)
        return told


class QueueList:
    """Queues in the order in which they joined; a queue is in one list at most. Not thread-safe.

    ``passing``: a queue leaves when a caller fills or queues a batch, or when the sender hurries.
    Elsewhere only the oldest batch counts, which callers cannot change. ``timed``: a timer runs for
    each member.
    """

    __slots__ = ("first", "last", "passing", "timed")

    def __init__(self, passing: bool = False, timed: bool = False) -> None:
        self.passing = passing
        self.timed = timed
        self.first: PartitionQueue | None = None
        self.last: PartitionQueue | None = None

    def join(self, one: PartitionQueue) -> None:
        """Append ``one``, which is in no list."""
        if self.last is None:
            self.first = one
        else:
            self.last.after = one
            one.before = self.last
        self.last = one
        one.queue_list = self

    def leave(self, one: PartitionQueue) -> None:
        """Remove ``one``, which is in this list."""
        before, after = one.before, one.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        one.queue_list = one.before = one.after = None

    def __iter__(self) -> Iterator[PartitionQueue]:
        """All members. The member yielded last may leave before the next one is asked for."""
        one = self.first
        while one is not None:
            following = one.after
            yield one
            one = following


class NodeQueues:
    """The queues with batches that can share a request: one node, one value of ``acks``.

    ``batches_grow_to``: how large a batch for the node may become, if that is more than
    ``batch_size``.
    """

    __slots__ = ("acks", "batches_grow_to", "due", "lingering", "node_id")

    def __init__(self, node_id: int, acks: int) -> None:
        self.node_id = node_id
        self.acks = acks
        self.batches_grow_to = 0
        self.due = QueueList()
        self.lingering = QueueList(passing=True, timed=True)


class Ready:
    """The result of one look at all queues.

    ``nodes``: the nodes with batches to send, each with the values of ``acks`` of these batches.
    ``next_check``: seconds until there may be more, if nothing happens. ``leaderless``: topics with
    records for a partition without a leader.
    """

    __slots__ = ("leaderless", "next_check", "nodes")

    def __init__(
        self, nodes: dict[int, list[int]], next_check: float, leaderless: set[str]
    ) -> None:
        self.nodes = nodes
        self.next_check = next_check
        self.leaderless = leaderless


class ReadyTracker:
    """Every queue that has batches stands at one of these places, or ``note`` was called for it.

    * due: its oldest batch should leave now;
    * lingering: it should leave when its linger is over, or as soon as there is a hurry;
    * resting: it failed, and its back-off is not over; no hurry shortens that;
    * held back: it should leave, and the gate did not let it;
    * leaderless: no leader of its partition is known.

    ``note`` is for any thread, everything else for the sender's. Only the sender removes batches:
    what other threads do to a queue never changes its oldest batch, unless it was empty.
    """

    __slots__ = (
        "_ages",
        "_growth",
        "_held_back",
        "_leaderless",
        "_looks",
        "_node_queues",
        "_resting",
        "_snapshot",
        "_snapshots",
        "_timers",
        "depths",
        "noted",
    )

    def __init__(self) -> None:
        # Appending and taking from the left are each atomic, with and without a GIL.
        self.noted: deque[PartitionQueue] = deque()
        self._node_queues: dict[tuple[int, int], NodeQueues] = {}  # where queues are due, or linger
        self._growth: dict[int, int] = {}  # how large batches may become, by node
        self._leaderless: dict[str, QueueList] = {}  # by topic
        self._resting = QueueList(timed=True)
        self._held_back = QueueList()
        self._timers = Timers()  # of those that linger or rest
        self._ages = Timers()  # no later than the oldest batch was created
        self._snapshot = ClusterSnapshot()
        self._snapshots = 1  # how many there have been: a queue knows which one it looked into
        self._looks = 0
        self.depths = QueueDepths()

    def note(self, queue: PartitionQueue) -> None:
        """A batch of ``queue`` is about to be pushed, or was filled, or is waited for. Any thread.

        Noting comes first with a push, for an exception may come in between; the sender that looks
        then waits for the queue's lock, or with a GIL for that, which the pushing caller keeps.
        """
        self.noted.append(queue)

    def note_anew(self, queue: PartitionQueue) -> None:
        """The sender has changed the oldest batch of ``queue``, or that batch's state."""
        self._leave(queue)
        if queue.oldest is not None:
            self.noted.append(queue)
        else:  # the caller that pushes the next batch has noted it, or is about to
            self.depths.forget(queue)

    def forget(self, queue: PartitionQueue) -> None:
        """Forget ``queue``, which is retired."""
        self._leave(queue)
        self._ages.discard(queue)
        self.depths.forget_topic(queue.tp.topic)

    def trim(self) -> None:
        """Free the room of forgotten queues."""
        self.depths.trim()

    def hold_back(self, queue: PartitionQueue) -> None:
        """The gate refused the oldest batch of ``queue``, and refuses it until ``reopened``."""
        self._move(queue, self._held_back)

    def reopened(self, queue: PartitionQueue) -> None:
        """The gate may admit the oldest batch of ``queue`` now."""
        if queue.queue_list is self._held_back:
            self.note_anew(queue)

    def let_grow(self, node_id: int, nbytes: int) -> None:
        """Batches for the node may become as large as that, if it is more than ``batch_size``.

        Holds for batches that are begun after the sender's next look at their queue.
        """
        self._growth[node_id] = nbytes
        for queues_of_node in self._node_queues.values():
            if queues_of_node.node_id == node_id:
                queues_of_node.batches_grow_to = nbytes

    def look(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Move every noted queue to the place where it belongs at ``now``."""
        if snapshot is not self._snapshot:
            self._follow(snapshot)
        self._looks += 1
        if self._timers.first() <= now:
            for queue in self._timers.take_due(now):
                self._leave(queue)
                self.noted.append(queue)
        # A fixed number: callers note queues meanwhile, and would keep the sender in this loop.
        for _ in range(len(self.noted)):
            queue = self.noted.popleft()
            if queue.look != self._looks:  # consider each queue once
                queue.look = self._looks
                self._consider(queue, now)

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        if snapshot != self._snapshot:
            self._snapshots += 1
            for queue in self._standing():
                self.note_anew(queue)
        self._snapshot = snapshot

    def _consider(self, queue: PartitionQueue, now: float) -> None:
        place = queue.queue_list
        if place is not None and not place.passing:
            queues_of_node = queue.queues_of_node
            if queues_of_node is not None:
                queue.grows_to = queues_of_node.batches_grow_to
                self.depths.see(queue)
            return
        batch, full = queue.head()
        if batch is None:
            self._leave(queue)
            self.depths.forget(queue)
            return
        self._ages.set_at_latest(queue, batch.created_at)
        if queue.found_in != self._snapshots:
            self._find(queue)
        leader, queues_of_node = queue.leader, queue.queues_of_node
        if leader is None or queues_of_node is None:
            self.depths.forget(queue)
            self._move(queue, self._leaderless_of(queue.tp.topic))
            return
        queue.grows_to = queues_of_node.batches_grow_to
        self.depths.see(queue)
        when = _due_at(batch, leader, AT_ONCE if full else queue.linger)
        if when <= now:
            self._move(queue, queues_of_node.due)
        else:
            self._move(queue, self._resting if batch.attempts else queues_of_node.lingering)
            self._timers.set(queue, when)

    def _find(self, queue: PartitionQueue) -> None:
        """Find the leader of ``queue``, once per snapshot: ``_consider`` runs twice for a batch."""
        leader = self._snapshot.leadership(queue.tp)
        queue.leader, queue.queues_of_node = leader, None
        if leader is not None:
            at = leader.leader_id, queue.acks
            queues_of_node = self._node_queues.get(at)
            if queues_of_node is None:
                queues_of_node = self._node_queues[at] = NodeQueues(*at)
                queues_of_node.batches_grow_to = self._growth.get(leader.leader_id, 0)
            queue.queues_of_node = queues_of_node
        queue.found_in = self._snapshots

    def _leaderless_of(self, topic: str) -> QueueList:
        place = self._leaderless.get(topic)
        if place is None:
            place = self._leaderless[topic] = QueueList()
        return place

    def _move(self, queue: PartitionQueue, place: QueueList) -> None:
        """Put ``queue`` at the end of ``place``; a queue that is there keeps its position."""
        if queue.queue_list is not place:
            self._leave(queue)
            place.join(queue)

    def _leave(self, queue: PartitionQueue) -> None:
        place = queue.queue_list
        if place is not None:
            place.leave(queue)
            if place.timed:
                self._timers.discard(queue)

    def _standing(self) -> list[PartitionQueue]:
        """All queues that have a place."""
        by_leader = [
            place
            for queues_of_node in self._node_queues.values()
            for place in (queues_of_node.due, queues_of_node.lingering)
        ]
        places = [*by_leader, *self._leaderless.values()]
        places += self._resting, self._held_back
        return [queue for place in places for queue in place]

    # The results of a look ------------------------------------------------------------------------

    def node_queues(self, hurry: bool) -> dict[int, list[int]]:
        """The nodes with batches to send, each with the values of ``acks`` of these batches."""
        found: dict[int, list[int]] = {}
        for queues_of_node in self._node_queues.values():
            if queues_of_node.due.first is not None or (
                hurry and queues_of_node.lingering.first is not None
            ):
                found.setdefault(queues_of_node.node_id, []).append(queues_of_node.acks)
        return found

    def at(self, node_id: int, acks: int, hurry: bool) -> list[QueueList]:
        """The places of queues with batches for the node, each in the order of joining."""
        queues_of_node = self._node_queues.get((node_id, acks))
        if queues_of_node is None:
            return []
        return [queues_of_node.due, queues_of_node.lingering] if hurry else [queues_of_node.due]

    def next_look(self) -> float:
        """When the first linger or back-off ends."""
        return self._timers.first()

    def leaderless(self) -> set[str]:
        """The topics with records for partitions without a known leader."""
        if self._leaderless:  # drop empty places, which would cost every later turn a look
            places = self._leaderless.items()
            self._leaderless = {topic: place for topic, place in places if place.first is not None}
        return set(self._leaderless)

    # Age, and the end -----------------------------------------------------------------------------

    def oldest(self) -> float:
        """When the oldest batch that waits was created; infinite when none does."""
        self._note_ages()
        while (first := self._ages.first()) < FOREVER:
            queues = self._ages.take_due(first)
            for queue in queues:
                if queue.oldest is not None:
                    self._ages.set(queue, queue.oldest.created_at)
            if self._ages.first() == first:
                return first
        return FOREVER

    def take_older(self, created_before: float) -> list[ProducerBatch]:
        """Remove the batches that were created before a time."""
        self._note_ages()
        gone: list[ProducerBatch] = []
        for queue in self._ages.take_due(created_before):
            gone += queue.take_expired(created_before)
            self.note_anew(queue)
        return gone

    def _note_ages(self) -> None:
        """Note the ages of the batches that ``look`` has not seen yet, too."""
        for queue in self._take_noted():
            if queue.oldest is not None:
                self._ages.set_at_latest(queue, queue.oldest.created_at)
            self.noted.append(queue)

    def _take_noted(self) -> list[PartitionQueue]:
        """The noted queues, each once; queues that callers note meanwhile stay noted."""
        noted: dict[PartitionQueue, None] = {}
        for _ in range(len(self.noted)):
            noted[self.noted.popleft()] = None
        return list(noted)

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch."""
        queues = dict.fromkeys([*self._standing(), *self._take_noted()])
        for queue in queues:
            self.note_anew(queue)
        return [batch for queue in queues for batch in queue.take_all()]


def _due_at(batch: ProducerBatch, leader: Leadership, linger: float) -> float:
    """When ``batch`` should leave for ``leader``: after its back-off if it failed, else linger."""
    if batch.attempts:
        # A new leader has nothing to do with the old one's trouble (KIP-951).
        before = batch.attempted_leader
        return batch.retry_at if before is None or before == leader else AT_ONCE
    return AT_ONCE if batch.delivery.awaited else batch.created_at + linger
