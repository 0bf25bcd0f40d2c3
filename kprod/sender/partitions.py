"""All partitions of a producer, and what they share: producer id, epochs, the rules for batches.

Kafka's ``RecordAccumulator.ready`` visits every partition in every iteration. Here, a partition is
visited only after something has happened to it (decision 0106): a caller has changed its queue, its
deadline has come, the sender has taken a batch or put one back, an answer has come, or its leader
has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from kprod.buffer.accumulator import RecordAccumulator
from kprod.clock import ExponentialBackoff
from kprod.cluster.metadata import Metadata
from kprod.cluster.snapshot import ClusterSnapshot
from kprod.errors import KprodError
from kprod.latch import Latch
from kprod.metrics.producer_metrics import ProducerMetrics
from kprod.sender.broker import Broker
from kprod.sender.deadlines import FOREVER
from kprod.sender.network import Network
from kprod.sender.partition import EMPTY, READY, WAITING, Partition, place_in_order
from kprod.sender.produce import ProduceExchange
from kprod.types import ProducerId, TopicPartition
from kprod_ext.batch import HEADER_BYTES, ProducerBatch
from kprod_ext.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from kprod.sender.coordination import Coordination

LAST_EPOCH = 2**15 - 1
_depth = attrgetter("depth")


class ProducerIdentity:
    """The producer id and epoch of new batches; None until brokers have assigned them.

    ``fatal``: why nothing can be sent any more. ``last_error``: why there is no id yet, if a broker
    or a connection has given a reason. ``settled`` opens when there is an id, when there will never
    be one, or when none is needed. ``used_up`` is called when the id has no epochs left and another
    id is needed. Used only by the owner of the loop; any thread may read ``fatal`` and ``settled``.
    """

    __slots__ = ("fatal", "last_error", "producer", "settled", "used_up")

    def __init__(self) -> None:
        self.producer: ProducerId | None = None
        self.fatal: KprodError | None = None
        self.last_error: KprodError | None = None
        self.settled = Latch()
        self.used_up: Callable[[], object] = bool


class PartitionSet:
    """The partitions that the producer has written to, and what they need.

    It sends their batches, in one request per broker and iteration (the core of Kafka's
    ``Sender``). ``request_timeout_ms`` is the broker's time limit. ``nodes_wait`` is called in each
    iteration in which some nodes could not take a ready batch, and once without nodes when all can
    take batches again.

    ``transaction``: decides when batches of a transactional producer may be sent, otherwise None. A
    transactional producer gets epochs only from its coordinator.

    ``ready``: the brokers with ready partitions. ``queues``: by topic and partition, those
    that have a batch; each partition updates its entries. ``on_wire``: the number of batches that
    requests hold. ``used``: by topic, when a batch was last sent; ``take_used`` empties it.
    ``changes`` grows when the length of a queue may have changed.

    Used only by the owner of the loop, except ``depths``.
    """

    def __init__(  # noqa: PLR0913
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        network: Network,
        metrics: ProducerMetrics,
        *,
        idempotent: bool,
        max_in_flight: int,
        delivery_timeout: float,
        retries: int,
        retry_backoff: ExponentialBackoff,
        request_timeout_ms: int,
        max_request_size: int,
        nodes_wait: Callable[[Collection[int], float], None] | None = None,
    ) -> None:
        self.accumulator = accumulator
        self.metadata = metadata
        self.network = network
        self.deadlines = network.deadlines
        self.metrics = metrics
        self.idempotent = idempotent
        self.max_in_flight = max_in_flight
        self.delivery_timeout = delivery_timeout
        self.retries = retries
        self.retry_backoff = retry_backoff
        self._request_timeout_ms = request_timeout_ms
        self._max_request_size = max_request_size
        self._nodes_wait = nodes_wait
        self._full: list[int] = []  # the nodes that could take nothing
        self.identity = ProducerIdentity()
        self.transaction: Coordination | None = None
        self.snapshot = ClusterSnapshot()
        self.snapshots = 1  # how many there have been: a partition knows which one it looked into
        self._expedited: bool | None = None  # none lingers; None: not asked since the last check
        self.lingering: dict[Partition, None] = {}
        self.queues: dict[str, dict[int, PartitionQueue]] = {}
        self.ready: dict[Broker, None] = {}
        self.awaiting_epoch: dict[Partition, None] = {}
        self.on_wire = 0
        self.used: dict[str, float] = {}
        self.changes = 0
        self._known: dict[TopicPartition, Partition] = {}

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

    # Sending --------------------------------------------------------------------------------------

    def send(self, now: float) -> bool:
        """Renumber batches, then send ready ones. True if more can be sent at once."""
        snapshot = self.metadata.snapshot
        if snapshot is not self.snapshot:  # from metadata, or after leader hints
            self._forget_unused()
            self.network.adopt(snapshot.brokers)
        if self.awaiting_epoch:
            self.renumber(now)
        self.check(snapshot, now)
        return bool(self.ready or self._full) and self._serve(now)

    def _serve(self, now: float) -> bool:
        """Make a request for every broker that can take one; True if one has more to send."""
        no_id = self.idempotent and self.identity.producer is None
        more = False
        full: list[int] = []
        for broker in list(self.ready):
            window = broker.window
            if not self.network.ready(broker, now) or (window.limits and not window.room()):
                full.append(broker.address.node_id)
            elif not no_id and self._request(broker, now) and broker.ready:
                more = True
        if self._nodes_wait is not None and (full or self._full):
            self._full = full
            self._nodes_wait(full, now)
        return more

    def _request(self, broker: Broker, now: float) -> bool:
        """Make a request for ``broker``. False if none of its batches may be sent."""
        window, most = broker.window, self._max_request_size
        if window.limits:
            most = min(window.room(), most)
        taken = self.drain(broker, most, now)
        if not taken:
            return False
        for batch in taken:
            if batch.size > window.size:
                self._cut(taken, window.size, now)
                break
        if taken:  # else all were cut
            broker.send(ProduceExchange(self, broker, taken, self._request_timeout_ms, now), now)
        return True

    def _cut(self, taken: list[ProducerBatch], most: int, now: float) -> None:
        """Cut batches larger than ``most``: they have grown while the network carried more.

        A batch whose sequence a broker may have read stays whole, because its parts would be out of
        sequence. Each part has about ``most`` bytes, and at least half of that.
        """
        for batch in list(taken):
            read = batch.maybe_written and batch.has_sequence
            if batch.size > most and batch.record_count > 1 and not read:
                part = max(1, most // 2, most - batch.max_record_size - HEADER_BYTES)
                batch.partition.split(batch, -(-batch.size // part), now)
                taken.remove(batch)

    def drain(self, broker: Broker, max_bytes: int, now: float) -> list[ProducerBatch]:
        """Take at most one batch per partition for one request: closed, and with a sequence.

        Together they have at most ``max_bytes``, unless the first one alone is larger. The
        partition that has waited longest comes first. A request has one value of ``acks``: batches
        with another one are left for the next request.
        """
        taken: list[ProducerBatch] = []
        left: list[Partition] = []  # with another value of ``acks``
        room, acks, ready = max_bytes, None, broker.ready
        for _ in range(len(ready)):  # without a copy: thousands may be ready, and few fit
            partition = next(iter(ready))
            if taken and partition.queue.acks != acks:
                ready.move_to_end(partition)
                left.append(partition)
                continue
            batch = partition.queue.oldest
            if batch is None:
                raise AssertionError(f"{partition.tp} is ready, and has no batch")
            if not partition.may_send(batch, now):
                partition.move(WAITING)
                continue
            if taken and batch.size > room:
                break
            if partition.take(batch, room if taken else self.accumulator.pool.total):
                room, acks = room - batch.size, partition.queue.acks
                taken.append(batch)
            partition.find_place(now)
            if partition in ready:
                ready.move_to_end(partition)
        for partition in reversed(left):
            ready.move_to_end(partition, last=False)
        return taken

    # What happened --------------------------------------------------------------------------------

    def check(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Check the partitions that have changed.

        The brokers in ``ready`` then have those that are ready.
        """
        if snapshot is not self.snapshot:
            self.snapshot, self.snapshots = snapshot, self.snapshots + 1
            self._expedited = None  # a flush may have ended since the last check
            for partition in self._waiting():
                partition.follow(now)
        if not (self.accumulator.changed or self.lingering or self.ready):
            return
        self._expedited = None
        if self.lingering and self.expedited():
            for partition in list(self.lingering):
                partition.move(READY)
        if self.accumulator.changed:
            self._take_changed(now)

    def expedited(self) -> bool:
        """True if no batch may linger now."""
        if self._expedited is None:
            self._expedited = self.accumulator.expedited()
        return self._expedited

    def reopen(self, partitions: Iterable[TopicPartition]) -> None:
        """The transaction allows batches of these partitions to be sent."""
        for tp in partitions:
            if tp in self._known:
                self._known[tp].go_on()

    def _take_changed(self, now: float) -> None:
        changed = self.accumulator.changed
        # A fixed number: callers add queues meanwhile, and would keep the sender in this loop.
        for left in range(len(changed) - 1, -1, -1):
            queue = changed.popleft()
            if left and changed[0] is queue:
                continue  # a caller has opened a batch, and waits for it
            if not queue.retired:
                (queue.partition or self.of(queue)).queue_changed(now)

    def _waiting(self) -> Iterator[Partition]:
        """The partitions with a queued batch."""
        return (each for each in self._known.values() if each.place is not EMPTY)

    # All of them ----------------------------------------------------------------------------------

    def take_queued(self, now: float) -> list[ProducerBatch]:
        """Remove all queued batches, and return them."""
        self._take_changed(now)
        return [batch for each in list(self._waiting()) for batch in each.take_queued(now)]

    def withdraw(
        self, now: float, *, queued: bool = True, in_flight: bool = True
    ) -> list[ProducerBatch]:
        """The batches without an outcome, in order. Queued ones are removed from their queues.

        ``in_flight``: those on the wire, and unresolved ones.
        """
        found: list[ProducerBatch] = []
        if in_flight:
            found = [batch for each in self._known.values() for batch in each.unanswered()]
        return sorted(found + self.take_queued(now) if queued else found, key=place_in_order)

    @property
    def drained(self) -> bool:
        """True if every record has its outcome, and no request holds a batch."""
        return not self.on_wire and len(self.accumulator.incomplete) == 0

    def _unsettled(self) -> set[ProducerBatch]:
        """All batches that have no outcome, are on the wire or unresolved."""
        sent = ([*each.in_flight, *each.unresolved] for each in self._known.values())
        return self.accumulator.incomplete.union(*sent)

    def busy_topics(self) -> set[str]:
        """The topics with batches that have no outcome or are on the wire."""
        return {batch.tp.topic for batch in self._unsettled()}

    def take_used(self, now: float) -> dict[str, float]:
        """The topics that are in use, and since the last call were, with the times of last use."""
        used, self.used = self.used, {}
        return used | dict.fromkeys(self.busy_topics(), now)

    def free(self) -> None:
        """Free all memory. Every record has its outcome, and no request is in flight."""
        for batch in self._unsettled():
            with suppress(ValueError):  # its memory was given back before
                batch.release()
            self.accumulator.incomplete.discard(batch)

    def depths(self, topic: str) -> Mapping[int, int]:
        """The number of queued batches by partition, without empty queues. Any thread."""
        queues = self.queues.get(topic)
        if not queues:
            return {}
        queues = queues.copy()
        return dict(zip(queues, map(_depth, queues.values()), strict=True))

    # Epochs ---------------------------------------------------------------------------------------

    def renumber(self, now: float) -> None:
        """Renumber the partitions that wait for a new epoch and have no batch on the wire.

        Batches that may be in the log fail instead.
        """
        for partition in list(self.awaiting_epoch):
            if partition.on_wire or (partition.in_flight and not partition.needs_new_epoch):
                continue
            if partition.producer == self.identity.producer:
                if self.transaction is not None:
                    continue  # the next transaction has another epoch
                self._bump_epoch()
            if self.identity.producer is None:
                break  # the epochs of this id are used up; identity comes first
            del self.awaiting_epoch[partition]
            partition.renumber(now)

    def _bump_epoch(self) -> None:
        """Take the next epoch. Partitions with nothing in flight use it when they send again."""
        known, self.identity.producer = self.identity.producer, None
        if known is not None and known.epoch < LAST_EPOCH:
            self.identity.producer = ProducerId(known.producer_id, known.epoch + 1)
        else:
            self.identity.used_up()

    def _forget_unused(self) -> None:
        """Forget topics that metadata has dropped. Topics with batches are forgotten later.

        A broker may still know the sequence numbers of a forgotten partition, and would mistake a
        batch that begins with 0 for a repetition. So all partitions get a new epoch. A
        transactional producer gets epochs only from its coordinator. If one of the partitions has
        used the present epoch, it forgets none of them before the next one.
        """
        topics = self.metadata.dropped
        if not topics:
            return
        topics -= self.busy_topics()
        producer = self.identity.producer
        dropped = [each for each in self._known.values() if each.tp.topic in topics]
        known = producer is not None and any(each.producer == producer for each in dropped)
        if known and self.transaction is not None:
            self.transaction.sequence_lost()  # a snapshot after the transaction's end forgets them
            return
        retired, used = self.accumulator.forget(topics)
        if known:
            self._bump_epoch()
        for tp in retired:
            partition = self._known.pop(tp, None)
            if partition is not None:
                self.deadlines.set(partition, FOREVER)
                self.awaiting_epoch.pop(partition, None)
        self._known = dict(self._known)  # a dict never shrinks by itself
        queues = self.queues.items()
        self.queues = {at: each for at, each in queues if at not in topics or at in used}
        self.metadata.forgotten(topics - used)
