"""All partitions of a producer, and what they share: producer id, epochs, groups for a request.

Kafka's ``RecordAccumulator.ready`` visits every partition in every iteration. Here, a partition is
visited only after something has happened to it (decision 0106): a caller has changed its queue, its
deadline has come, the sender has taken a batch or put one back, an answer has come, or its leader
has changed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

from kprod.buffer.accumulator import RecordAccumulator
from kprod.clock import ExponentialBackoff
from kprod.cluster.snapshot import ClusterSnapshot
from kprod.errors import KprodError
from kprod.latch import Latch
from kprod.sender.deadlines import FOREVER, Deadlines
from kprod.sender.partition import EMPTY, READY, WAITING, Partition, age
from kprod.types import ProducerId, TopicPartition
from kprod_ext.batch import ProducerBatch
from kprod_ext.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from kprod.sender.coordination import Coordination

LAST_EPOCH = 2**15 - 1
_depth = attrgetter("depth")


class ProducerIdentity:
    """The producer id and epoch of new batches; None until brokers have assigned them.

    ``fatal``: why nothing can be sent any more. ``trouble``: why there is no id yet, if a broker or
    a connection has given a reason. ``settled`` opens when there is an id, when there will never be
    one, or when none is needed. ``used_up`` is called when the id has no epochs left and another id
    is needed. Used only by the sender's thread; any thread may read ``fatal`` and ``settled``.
    """

    __slots__ = ("fatal", "producer", "settled", "trouble", "used_up")

    def __init__(self) -> None:
        self.producer: ProducerId | None = None
        self.fatal: KprodError | None = None
        self.trouble: KprodError | None = None
        self.settled = Latch()
        self.used_up: Callable[[], object] = bool


class Window:
    """The bytes that may be in flight to one broker, and the maximum size of its batches.

    It works like TCP's congestion window (RFC 5681): answers make it grow, and a loss halves it.
    Some networks break every connection after a number of bytes, or carry less than a request
    within ``request_timeout_ms``. Without a window, a large batch would never arrive there: its
    repetition is as large as the first attempt. Bytes are those of batches. Times are seconds of
    one clock.

    ``size`` begins with ``least``, which is the size of a batch that has not grown, and grows to
    ``most``. It grows by all answered bytes until it has half the size that it had before the last
    loss (slow start). Then it grows by ``least`` for each answered window. An answer that took
    longer than ``slow`` adds nothing, because twice as many bytes might take too long. After a
    loss, ``size`` is half of the bytes that were in flight, but at least ``least``.

    ``size`` always limits batches. If ``limits`` is True, it limits the bytes in flight as well:
    from a loss until ``size`` is ``most`` again. ``in_flight``: the bytes of unanswered requests.
    The maker of a request adds them; ``answered`` or ``failed`` subtracts them.

    Used only by the sender's thread.
    """

    def __init__(self, least: int, most: int, slow: float) -> None:
        self._least = least
        self._most = max(least, most)
        self._slow = slow
        self._half = self._most  # where slow start ends
        self._fell_at = -FOREVER
        self.in_flight = 0
        self.size = least
        self.limits = False  # True: it limits requests, too

    def room(self) -> int:
        """The bytes that another request may have now; 0: it must wait.

        If nothing is in flight, one batch may be sent, whatever its size.
        """
        if not self.limits:
            return self._most
        return max(self.size - self.in_flight, 0 if self.in_flight else 1)

    def answered(self, nbytes: int, seconds: float) -> None:
        """A request of ``nbytes`` was answered after ``seconds``."""
        self.in_flight -= nbytes
        size = self.size
        if size < self._most and seconds <= self._slow:
            size += nbytes if size < self._half else nbytes * self._least // size
            self.size = size if size < self._most else self._most
            if self.size == self._most:
                self.limits = False  # the window has its former size again

    def failed(self, nbytes: int, sent_at: float, now: float, *, lost: bool) -> None:
        """A request of ``nbytes`` ended without an answer.

        ``lost``: because its connection was lost. The loss of a connection counts once, for all
        requests that it carried.
        """
        if lost and sent_at > self._fell_at:
            self._fell_at = now
            self.limits = True
            self._half = max(self._least, self.size // 2)
            self.size = max(self._least, min(self.size, self.in_flight) // 2)
        self.in_flight -= nbytes


class RequestGroup:
    """The partitions whose batches can share a request: they have the same leader and ``acks``.

    ``ready``: those that are ready, the one that has waited longest first. ``window``: that of the
    leader, shared with its other groups.
    """

    __slots__ = ("acks", "node_id", "ready", "window")

    def __init__(self, node_id: int, acks: int, window: Window) -> None:
        self.node_id = node_id
        self.acks = acks
        self.window = window
        self.ready: OrderedDict[Partition, None] = OrderedDict()

    def drain(self, max_bytes: int, most: int, now: float) -> list[ProducerBatch]:
        """Take at most one batch per partition for one request: closed, and with a sequence.

        Together they have at most ``max_bytes``. If the first one alone is larger, it has at most
        ``most``.
        """
        taken: list[ProducerBatch] = []
        room, ready = max_bytes, self.ready
        for _ in range(len(ready)):
            partition = next(iter(ready))
            batch = partition.queue.oldest
            if batch is None:
                raise AssertionError(f"{partition.tp} is ready, and has no batch")
            if not partition.may_send(batch, now):
                partition.move(WAITING)
                continue
            if taken and batch.size > room:
                break
            if partition.take(batch, room if taken else most):
                room -= batch.size
                taken.append(batch)
            partition.find_place(now)
            if partition in ready:
                ready.move_to_end(partition)
        return taken


class PartitionSet:
    """The partitions that the producer has written to.

    ``transaction``: decides when batches of a transactional producer may be sent, otherwise None. A
    transactional producer gets epochs only from its coordinator. ``expire`` is called with each
    batch that has no outcome ``delivery_timeout`` seconds after it was created.

    ``groups``: those with ready partitions; the one that was served last is at the end.
    ``leaderless``: by topic, the number of partitions that have a batch but no leader. ``queued``:
    by topic and partition, the queues that have a batch; each partition updates its entries.
    ``on_wire``: the number of batches that requests hold. ``changes`` grows when the length of a
    queue may have changed. ``new_window`` makes the window of a broker.

    Used only by the sender's thread, except ``depths``.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        deadlines: Deadlines,
        *,
        idempotent: bool,
        max_in_flight: int,
        delivery_timeout: float,
        retry_backoff: ExponentialBackoff,
        new_window: Callable[[], Window],
    ) -> None:
        self.accumulator = accumulator
        self.deadlines = deadlines
        self.idempotent = idempotent
        self.max_in_flight = max_in_flight
        self.delivery_timeout = delivery_timeout
        self.retry_backoff = retry_backoff
        self.identity = ProducerIdentity()
        self.transaction: Coordination | None = None
        self.expire: Callable[[ProducerBatch, float], None]
        self.snapshot = ClusterSnapshot()
        self.snapshots = 1  # how many there have been: a partition knows which one it looked into
        self._hurry: bool | None = None  # none lingers; None: not asked since the last look
        self.lingering: dict[Partition, None] = {}
        self.leaderless: Counter[str] = Counter()
        self.queued: dict[str, dict[int, PartitionQueue]] = {}
        self.groups: dict[RequestGroup, None] = {}
        self.awaiting_epoch: dict[Partition, None] = {}
        self.on_wire = 0
        self.changes = 0
        self._known: dict[TopicPartition, Partition] = {}
        self._by_leader: dict[tuple[int, int], RequestGroup] = {}
        self._new_window = new_window
        self._windows: dict[int, Window] = {}  # by node

    @property
    def needs_producer_id(self) -> bool:
        """True if nothing can be sent before an InitProducerId request has been answered."""
        return self.idempotent and self.identity.producer is None

    def of(self, queue: PartitionQueue) -> Partition:
        """The partition whose records are in ``queue``."""
        found: Partition | None = queue.partition
        if found is None:
            found = self._known.get(queue.tp)
            if found is None:
                found = self._known[queue.tp] = Partition(queue, self)
            found.queue, queue.partition = queue, found
        return found

    # What happened --------------------------------------------------------------------------------

    def look(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Look at partitions to which something has happened.

        ``groups`` then contains the ready ones.
        """
        if snapshot is not self.snapshot:
            self._follow(snapshot, now)
        if not (self.accumulator.noted or self.lingering or self.groups):
            return
        self._hurry = None
        if self.lingering and self.hurries():
            for partition in list(self.lingering):
                partition.move(READY)
        if self.accumulator.noted:
            self._take_noted(now)

    def hurries(self) -> bool:
        """True if no batch may linger now."""
        if self._hurry is None:
            self._hurry = self.accumulator.hurries()
        return self._hurry

    def reopen(self, partitions: Iterable[TopicPartition]) -> None:
        """The transaction allows batches of these partitions to be sent."""
        for tp in partitions:
            if tp in self._known:
                self._known[tp].go_on()

    def _take_noted(self, now: float) -> None:
        noted = self.accumulator.noted
        # A fixed number: callers note queues meanwhile, and would keep the sender in this loop.
        for left in range(len(noted) - 1, -1, -1):
            queue = noted.popleft()
            if left and noted[0] is queue:
                continue  # a caller has opened a batch, and waits for it
            if not queue.retired:
                (queue.partition or self.of(queue)).noted(now)

    def _follow(self, snapshot: ClusterSnapshot, now: float) -> None:
        changed, self.snapshot = snapshot != self.snapshot, snapshot
        if changed:
            self.snapshots += 1
            self._hurry = None  # a flush may have ended since the last look
            for partition in self._waiting():
                partition.follow(now)
            brokers, groups, windows = snapshot.brokers, self._by_leader, self._windows
            self._by_leader = {at: group for at, group in groups.items() if at[0] in brokers}
            if brokers:  # a cluster that is looked for anew has none for a moment
                self._windows = {node: each for node, each in windows.items() if node in brokers}

    def _waiting(self) -> Iterator[Partition]:
        """The partitions with a queued batch."""
        return (each for each in self._known.values() if each.place is not EMPTY)

    def group_of(self, node_id: int, acks: int) -> RequestGroup:
        """The group of partitions with this leader and this value of ``acks``."""
        group = self._by_leader.get((node_id, acks))
        if group is None:
            window = self.window_of(node_id)
            group = self._by_leader[node_id, acks] = RequestGroup(node_id, acks, window)
        return group

    def window_of(self, node_id: int) -> Window:
        """The window of a broker. If a broker leaves the cluster and returns, it gets a new one."""
        return self._windows.get(node_id) or self._windows.setdefault(node_id, self._new_window())

    # All of them ----------------------------------------------------------------------------------

    def take_queued(self, now: float) -> list[ProducerBatch]:
        """Remove all queued batches, and return them."""
        self._take_noted(now)
        return [batch for each in list(self._waiting()) for batch in each.take_queued(now)]

    def withdraw(
        self, now: float, *, queued: bool = True, in_flight: bool = True
    ) -> list[ProducerBatch]:
        """The batches without an outcome, oldest first. Queued ones are removed from their queues.

        ``in_flight``: those on the wire, and unresolved ones.
        """
        found: list[ProducerBatch] = []
        if in_flight:
            found = [batch for each in self._known.values() for batch in each.unanswered()]
        return sorted(found + self.take_queued(now) if queued else found, key=age)

    def sent(self) -> list[ProducerBatch]:
        """The batches that were sent and have no outcome, and the unresolved ones."""
        return [
            batch for one in self._known.values() for batch in [*one.in_flight, *one.unresolved]
        ]

    def depths(self, topic: str) -> Mapping[int, int]:
        """The number of queued batches by partition, without empty queues. Any thread."""
        queues = self.queued.get(topic)
        if not queues:
            return {}
        queues = queues.copy()
        return dict(zip(queues, map(_depth, queues.values()), strict=True))

    # Epochs ---------------------------------------------------------------------------------------

    def renumber(self, now: float) -> list[ProducerBatch]:
        """Renumber the partitions that wait for a new epoch and have no batch on the wire.

        Returns the batches that must fail instead, because they may be in the log.
        """
        doomed: list[ProducerBatch] = []
        for partition in list(self.awaiting_epoch):
            if partition.on_wire or (partition.in_flight and not partition.needs_new_epoch):
                continue
            if partition.producer == self.identity.producer:
                if self.transaction is not None:
                    continue  # the next transaction has another epoch
                self._bump_epoch()
            if self.identity.producer is None:
                break  # the epochs of this id are used up; identity comes first
            doomed += partition.renumber(now)
            del self.awaiting_epoch[partition]
        return doomed

    def _bump_epoch(self) -> None:
        """Take the next epoch. Partitions with nothing in flight use it when they send again."""
        known, self.identity.producer = self.identity.producer, None
        if known is not None and known.epoch < LAST_EPOCH:
            self.identity.producer = ProducerId(known.producer_id, known.epoch + 1)
        else:
            self.identity.used_up()

    def forget(self, topics: set[str]) -> set[str]:
        """Forget ``topics``, of which no request holds a batch. Returns those that are in use.

        A broker may still know the sequence numbers of a forgotten partition, and would mistake a
        batch that begins with 0 for a repetition. So all partitions get a new epoch. A
        transactional producer gets epochs only from its coordinator. So if one of the partitions
        has used the present epoch, it forgets none of them.
        """
        retired, used = self.accumulator.forget(topics)
        found = [self._known[tp] for tp in retired if tp in self._known]
        idle = [each for each in found if not (each.in_flight or each.unresolved)]
        for partition in found:
            self.deadlines.set(partition, FOREVER)
        known = any(each.producer == self.identity.producer for each in idle)  # by a broker
        if known and self.transaction is not None:
            return used  # only the coordinator gives epochs: partitions stay under the present one
        if known:
            self._bump_epoch()  # first: if there is no memory for it, nothing is forgotten
        for partition in idle:
            del self._known[partition.tp]
            self.awaiting_epoch.pop(partition, None)
        self._known = dict(self._known)  # a dict never shrinks by itself
        queued = self.queued.items()
        self.queued = {at: each for at, each in queued if at not in topics or at in used}
        return used
