"""Which queues the sender should look at, and where each of them stood when it last did.

Kafka's ``RecordAccumulator.ready`` walks every partition in every turn. Here a queue is looked at
only after something happened to it: a batch was opened or filled, somebody waits for one, its time
has come, the sender itself put a batch back or took one out, the gate opened, or leaders changed.
Then it is put where it belongs until something happens again.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from itertools import chain

from kprod.buffer.batch import ProducerBatch
from kprod.buffer.batch_queue import BatchQueue
from kprod.buffer.queue_depths import QueueDepths
from kprod.buffer.timers import Timers
from kprod.cluster.snapshot import ClusterSnapshot, Leadership

FOREVER = float("inf")
AT_ONCE = -FOREVER

Post = tuple[int, int]
"""Where requests are made: the id of a node, and the ``acks`` they ask for."""


class Place(OrderedDict[BatchQueue, None]):
    """Queues that stand together, in the order of their coming.

    ``passing``: what callers do, and a hurry, may let a queue go on from here. Elsewhere only the
    oldest batch counts, which they cannot change.
    """

    def __init__(self, *, passing: bool = False) -> None:
        super().__init__()
        self.passing = passing


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

    def __init__(self) -> None:
        # Appending and taking from the left are each atomic, with and without a GIL.
        self._noted: deque[BatchQueue] = deque()
        self._due: dict[Post, Place] = defaultdict(Place)
        self._lingering: dict[Post, Place] = defaultdict(lambda: Place(passing=True))
        self._leaderless: dict[str, Place] = defaultdict(Place)  # by topic
        self._resting = Place()
        self._shut = Place()
        self._timers: Timers[BatchQueue] = Timers()  # of those that linger or rest
        self._ages: Timers[BatchQueue] = Timers()  # no later than the oldest batch was created
        self._snapshot = ClusterSnapshot()
        self._looked_up: dict[BatchQueue, Leadership] = {}  # who leads what, of that snapshot
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
            self._forget_leader(queue)

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
            if snapshot != self._snapshot:
                for queue in self._standing():
                    self.note_anew(queue)
            self._snapshot = snapshot
            self._looked_up.clear()
        due = self._timers.take_due(now)
        for queue in due:
            self._leave(queue)
        unseen = dict.fromkeys([*due, *self._take_noted()])
        try:
            for queue in unseen:
                self._consider(queue, now)
        except BaseException:
            # Memory has run out, say. This turn is over, but who else would note them again?
            self._noted.extend(unseen)
            raise

    def _take_noted(self) -> dict[BatchQueue, None]:
        """Each once, and not what is noted meanwhile: busy callers would keep the sender here."""
        return dict.fromkeys(self._noted.popleft() for _ in range(len(self._noted)))

    def _consider(self, queue: BatchQueue, now: float) -> None:
        place = queue.place
        if place is not None and not place.passing:
            if queue.leader is not None:
                self.depths.see(queue)
            return
        batch, full = queue.head()
        if batch is None:
            self._leave(queue)
            self._forget_leader(queue)
            return
        self._ages.set_at_latest(queue, batch.created_at)
        leader = self._looked_up.get(queue) or self._look_up(queue)
        if leader is None:
            self._forget_leader(queue)
            self._move(queue, self._leaderless[queue.tp.topic])
            return
        queue.leader = leader
        self.depths.see(queue)
        post = leader.leader_id, queue.settings.acks
        when = _due_at(batch, leader, AT_ONCE if full else queue.settings.linger)
        if when <= now:
            self._move(queue, self._due[post])
        else:
            self._move(queue, self._resting if batch.attempts else self._lingering[post])
            self._timers.set(queue, when)

    def _look_up(self, queue: BatchQueue) -> Leadership | None:
        """Once per snapshot: a queue is considered twice for every batch of it."""
        leader = self._snapshot.leadership(queue.tp)
        if leader is not None:
            self._looked_up[queue] = leader
        return leader

    def _forget_leader(self, queue: BatchQueue) -> None:
        queue.leader = None
        self.depths.forget(queue)

    def _move(self, queue: BatchQueue, place: Place) -> None:
        """Let ``queue`` stand at ``place``; where it stands already it keeps its turn."""
        if queue.place is not place:
            self._leave(queue)
            place[queue] = None
            queue.place = place

    def _leave(self, queue: BatchQueue) -> None:
        place, queue.place = queue.place, None
        if place is not None:
            del place[queue]
            self._timers.discard(queue)

    def _standing(self) -> list[BatchQueue]:
        """All that stand anywhere."""
        by_leader = chain(self._due.values(), self._lingering.values(), self._leaderless.values())
        return [queue for there in (*by_leader, self._resting, self._shut) for queue in there]

    # What was seen --------------------------------------------------------------------------------

    def posts(self, *, hurry: bool) -> dict[int, list[int]]:
        """The nodes something should leave for now, each with the ``acks`` that are asked for."""
        found: dict[int, dict[int, None]] = {}
        for there in (self._due, self._lingering) if hurry else (self._due,):
            for (node_id, acks), queues in there.items():
                if queues:
                    found.setdefault(node_id, {})[acks] = None
        return {node_id: list(asked) for node_id, asked in found.items()}

    def at(
        self, node_id: int, acks: int, *, hurry: bool
    ) -> Iterator[tuple[BatchQueue, Leadership]]:
        """What should leave for there, longest waiting first. No queue may be moved meanwhile."""
        post = node_id, acks
        due = self._due.get(post, ())
        lingering = self._lingering.get(post, ()) if hurry else ()
        for queue in chain(due, lingering):
            if queue.leader is not None:  # so it is, for those that stand here
                yield queue, queue.leader

    def next_look(self) -> float:
        """When the first linger or back-off ends."""
        return self._timers.first()

    def leaderless(self) -> set[str]:
        """The topics with records for partitions that nobody is known to lead."""
        return {topic for topic, queues in self._leaderless.items() if queues}

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

    def take_all(self) -> list[ProducerBatch]:
        """Remove every batch."""
        queues = dict.fromkeys(self._standing()) | self._take_noted()
        for queue in queues:
            self.note_anew(queue)
        return [batch for queue in queues for batch in queue.take_all()]


def _due_at(batch: ProducerBatch, leader: Leadership, linger: float) -> float:
    """When ``batch`` should leave for ``leader``: after its back-off if it failed, else linger."""
    if batch.attempts:
        # A new leader has nothing to do with the old one's trouble (KIP-951).
        moved = batch.attempted_leader not in (None, leader)
        return AT_ONCE if moved else batch.retry_at
    return AT_ONCE if batch.delivery.awaited else batch.created_at + linger
