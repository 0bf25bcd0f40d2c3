"""Which queues the sender should look at, and where each of them stood when it last did.

Kafka's ``RecordAccumulator.ready`` walks every partition in every turn. Here a queue is looked at
only after something happened to it: a batch was opened or filled, somebody waits for one, its time
has come, the sender itself put a batch back or took one out, the gate opened, or leaders changed.
Then it is put where it belongs until something happens again.
"""

from __future__ import annotations

from collections import deque

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.batch_queue import BatchQueue
from kprod.buffer.place import Place, Post
from kprod.buffer.queue_depths import QueueDepths
from kprod.buffer.timers import Timers
from kprod.cluster.snapshot import ClusterSnapshot, Leadership

FOREVER = float("inf")
AT_ONCE = -FOREVER


class Attention:
    """Every queue that has batches stands at one of these places, or ``note`` was called for it.

    * due: its oldest batch should leave now;
    * lingering: it should leave when its linger is over, or as soon as there is a hurry;
    * resting: it failed, and its back-off is not over; no hurry shortens that;
    * shut: it should leave, and the gate did not let it;
    * leaderless: nobody is known to lead its partition.

    ``note`` is for any thread, everything else for the sender's. Only the sender removes batches:
    what other threads do to a queue never changes its oldest batch, unless it was empty.
    """

    __slots__ = (
        "_ages",
        "_leaderless",
        "_looks",
        "_noted",
        "_posts",
        "_resting",
        "_shut",
        "_snapshot",
        "_snapshots",
        "_timers",
        "depths",
    )

    def __init__(self) -> None:
        # Appending and taking from the left are each atomic, with and without a GIL.
        self._noted: deque[BatchQueue] = deque()
        self._posts: dict[tuple[int, int], Post] = {}  # where queues are due, or linger
        self._leaderless: dict[str, Place] = {}  # by topic
        self._resting = Place()
        self._shut = Place()
        self._timers = Timers()  # of those that linger or rest
        self._ages = Timers()  # no later than the oldest batch was created
        self._snapshot = ClusterSnapshot()
        self._snapshots = 1  # how many there have been: a queue knows which one it looked into
        self._looks = 0
        self.depths = QueueDepths()

    def note(self, queue: BatchQueue) -> None:
        """A batch of ``queue`` is about to be pushed, or was filled, or is waited for. Any thread.

        Noting comes first with a push, for an exception may come in between; the sender that looks
        then waits for the queue's lock, which the one who pushes holds.
        """
        self._noted.append(queue)

    def note_anew(self, queue: BatchQueue) -> None:
        """The sender changed which batch of ``queue`` is the oldest, or what holds for it."""
        self._leave(queue)
        if queue.oldest is not None:
            self._noted.append(queue)
        else:  # who pushes the next batch has noted it, or is about to
            self.depths.forget(queue)

    def shut(self, queue: BatchQueue) -> None:
        """The gate did not let ``queue`` pass; it will not before ``reopened``."""
        self._move(queue, self._shut)

    def reopened(self, queue: BatchQueue) -> None:
        """The gate may let ``queue`` pass now, if it did not before."""
        if queue.place is self._shut:
            self.note_anew(queue)

    def look(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Put every queue to which something happened where it belongs at ``now``."""
        if snapshot is not self._snapshot:
            self._follow(snapshot)
        self._looks += 1
        if self._timers.first() <= now:
            for queue in self._timers.take_due(now):
                self._leave(queue)
                self._noted.append(queue)
        # Not what is noted meanwhile: busy callers would keep the sender here.
        for _ in range(len(self._noted)):
            queue = self._noted.popleft()
            if queue.look != self._looks:  # each once
                queue.look = self._looks
                try:
                    self._consider(queue, now)
                except BaseException:
                    # Memory has run out, say. This turn is over, but who else would note it again?
                    self._noted.appendleft(queue)
                    raise

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        if snapshot != self._snapshot:
            self._snapshots += 1
            for queue in self._standing():
                self.note_anew(queue)
        self._snapshot = snapshot

    def _consider(self, queue: BatchQueue, now: float) -> None:
        place = queue.place
        if place is not None and not place.passing:
            if queue.leader is not None:
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
        leader, post = queue.leader, queue.post
        if leader is None or post is None:
            self.depths.forget(queue)
            self._move(queue, self._leaderless_of(queue.tp.topic))
            return
        self.depths.see(queue)
        when = _due_at(batch, leader, AT_ONCE if full else queue.linger)
        if when <= now:
            self._move(queue, post.due)
        else:
            self._move(queue, self._resting if batch.attempts else post.lingering)
            self._timers.set(queue, when)

    def _find(self, queue: BatchQueue) -> None:
        """Once per snapshot: a queue is considered twice for every batch of it."""
        leader = self._snapshot.leadership(queue.tp)
        queue.leader, queue.post = leader, None
        if leader is not None:
            at = leader.leader_id, queue.acks
            post = self._posts.get(at)
            if post is None:
                post = self._posts[at] = Post(*at)
            queue.post = post
        queue.found_in = self._snapshots

    def _leaderless_of(self, topic: str) -> Place:
        place = self._leaderless.get(topic)
        if place is None:
            place = self._leaderless[topic] = Place()
        return place

    def _move(self, queue: BatchQueue, place: Place) -> None:
        """Let ``queue`` stand at ``place``; where it stands already it keeps its turn."""
        if queue.place is not place:
            self._leave(queue)
            place.join(queue)

    def _leave(self, queue: BatchQueue) -> None:
        if queue.place is not None:
            queue.place.leave(queue)
            self._timers.discard(queue)

    def _standing(self) -> list[BatchQueue]:
        """All that stand anywhere."""
        by_leader = [place for post in self._posts.values() for place in (post.due, post.lingering)]
        places = [*by_leader, *self._leaderless.values()]
        places += self._resting, self._shut
        return [queue for place in places for queue in place]

    # What was seen --------------------------------------------------------------------------------

    def posts(self, hurry: bool) -> dict[int, list[int]]:
        """The nodes that something should be sent to, each with the ``acks`` that are asked for."""
        found: dict[int, list[int]] = {}
        for post in self._posts.values():
            if post.due.first is not None or (hurry and post.lingering.first is not None):
                found.setdefault(post.node_id, []).append(post.acks)
        return found

    def at(self, node_id: int, acks: int, hurry: bool) -> list[Place]:
        """Where those stand that should leave for there; each place longest waiting first."""
        post = self._posts.get((node_id, acks))
        if post is None:
            return []
        return [post.due, post.lingering] if hurry else [post.due]

    def next_look(self) -> float:
        """When the first linger or back-off ends."""
        return self._timers.first()

    def leaderless(self) -> set[str]:
        """The topics with records for partitions that nobody is known to lead."""
        if self._leaderless:  # what has a leader again shall cost the next turns nothing
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
        """Also of the batches that ``look`` has not seen yet."""
        for queue in self._take_noted():
            if queue.oldest is not None:
                self._ages.set_at_latest(queue, queue.oldest.created_at)
            self._noted.append(queue)

    def _take_noted(self) -> list[BatchQueue]:
        """Each once, and not what is noted meanwhile."""
        noted: dict[BatchQueue, None] = {}
        for _ in range(len(self._noted)):
            noted[self._noted.popleft()] = None
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
