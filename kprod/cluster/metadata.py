"""The cell that publishes cluster snapshots, and what decides when to ask for a new one.

Application threads wait here for a topic (``await_topic``); the sender's thread asks ``due``,
sends the request that ``wanted`` describes and reports with ``answered`` or ``failed``. The rules
are those of Kafka's ``Metadata`` and ``ProducerMetadata``: a refresh by age, a forced one, a
partial one for topics never seen, back-off after failures and after answers that brought nothing
new.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping

from kprod.backoff import ExponentialBackoff
from kprod.clock import Clock
from kprod.cluster.snapshot import (
    Broker,
    ClusterSnapshot,
    LeaderHint,
    PartitionInfo,
    TopicInfo,
)
from kprod.cluster.troubles import Troubles
from kprod.errors import (
    REFRESHES_METADATA,
    BrokerError,
    KprodError,
    KprodTimeoutError,
    ProducerClosedError,
)
from kprod.latch import Latch
from kprod.types import TopicPartition
from kprod.wire.control import MetadataReply, PartitionReply, TopicReply

FOREVER = float("inf")
MOST_HOLES = 1000


class Metadata:
    """Holds the current snapshot. Thread-safe.

    ``snapshot`` is read without a lock; ``on_publish`` is called with each new one, by the thread
    that reports the answer. ``_lock`` guards every other field; nothing is called and nothing
    blocks while it is held.
    """

    def __init__(
        self, *, clock: Clock, max_age: float, max_idle: float, backoff: ExponentialBackoff
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self.on_publish: Callable[[ClusterSnapshot], None] | None = None
        self._clock = clock
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._lock = threading.Lock()
        self._changed = Latch()  # opens at the next change that those who wait should look at
        self._last_use: dict[str, float] = {}
        self._new_topics: set[str] = set()
        self._asked: set[str] = set()  # those of the request that is under way
        self._full_wanted = False
        self._in_flight = False
        self._answers = 0
        self._troubles = Troubles()
        self._closed = False
        self._failures = 0
        self._fruitless = 0  # answers in a row that brought nothing new
        self._last_attempt = -FOREVER
        self._last_success = -FOREVER
        self._quiet_until = -FOREVER  # until then ``due`` need not look at any of the above,
        self._next_due = FOREVER  # for nothing is due before this

    # Application threads ----------------------------------------------------------------------

    def await_topic(
        self, topic: str, timeout: float, wake: Callable[[], None], partition: int | None = None
    ) -> TopicInfo:
        """The topic, waiting at most ``timeout`` seconds until it (and ``partition``) is known.

        ``wake`` is called after a request was noted down, so that the sender's thread looks.
        Raises BrokerError when a broker refuses the topic for good, ProducerClosedError after
        ``close``, KprodTimeoutError naming the last cause otherwise.
        """
        found = self.snapshot.topic(topic)
        if found is not None and (partition is None or partition < len(found)):
            return found
        return self._wait(topic, partition, self._clock.monotonic() + timeout, timeout, wake)

    def _wait(
        self,
        topic: str,
        partition: int | None,
        deadline: float,
        timeout: float,
        wake: Callable[[], None],
    ) -> TopicInfo:
        seen = -1
        while True:
            with self._lock:
                found = self.snapshot.topic(topic)
                if found is not None and (partition is None or partition < len(found)):
                    return found
                self._raise_refusal(topic, since=seen)
                if self._closed:
                    raise ProducerClosedError(f"closed while topic {topic!r} was looked up")
                # Noted even when there is no time to wait: then the next call finds the topic.
                # The first time in any case: who noted it before may have been interrupted then.
                asked = self._note_wanted(topic) or seen < 0
                seen = max(seen, self._answers)
                left = deadline - self._clock.monotonic()
                if left <= 0 and not asked:
                    raise self._timed_out(topic, partition, found, timeout)
                changed = self._changed
            if asked:
                wake()
            else:
                changed.wait(left)

    def _tell_waiters(self) -> None:
        """Something they may wait for has changed; the lock is held."""
        self._changed.open()
        self._changed = Latch()

    def _note_wanted(self, topic: str) -> bool:
        """Note that a waiter wants ``topic``; True when that is news to the sender's thread."""
        known = topic in self._last_use
        self._last_use[topic] = self._clock.monotonic()
        self._quiet_until = -FOREVER
        if not known:
            self._new_topics.add(topic)
            return True
        news = not self._full_wanted and not self._in_flight and topic not in self._new_topics
        self._full_wanted = self._full_wanted or news
        return news

    def _raise_refusal(self, topic: str, since: int) -> None:
        refused = self._troubles.topics.get(topic)
        if refused is not None and not refused.retriable and self._answers > since >= 0:
            raise copy.copy(refused)  # others may get it, too, and it must not grow with each

    def _timed_out(
        self, topic: str, partition: int | None, found: TopicInfo | None, timeout: float
    ) -> KprodTimeoutError:
        what = f"topic {topic!r}" if found is None else f"partition {partition} of topic {topic!r}"
        if found is not None:
            why = f"the topic has {len(found)} partitions (0 to {len(found) - 1})"
        else:
            why = self._troubles.why(topic)
        error = KprodTimeoutError(f"no metadata for {what} within {timeout:.3g} s: {why}")
        error.__cause__ = self._troubles.cause(topic)
        return error

    def trouble(self, topic: str) -> KprodError | None:
        """Why nothing new is known of ``topic``, as far as a broker or a connection told."""
        with self._lock:
            return self._troubles.cause(topic)

    def age(self, now: float) -> float:
        """Seconds since the cluster last told of itself; 0 before it did. Any thread."""
        last = self._last_success
        return now - last if last > -FOREVER else 0.0

    def close(self) -> None:
        """The producer closes: whoever waits gets ProducerClosedError."""
        with self._lock:
            self._closed = True
            self._tell_waiters()

    # The sender's thread ----------------------------------------------------------------------

    def due(self, now: float) -> float:
        """Seconds until a metadata request should leave: 0.0 at once, infinite while one is out."""
        # Asked twice per turn. A change in another thread that this does not see, for it comes
        # without the lock, is followed by a wake-up, and so by another turn.
        if now < self._quiet_until:
            return self._next_due - now
        with self._lock:
            if self._in_flight or not (self._last_use or self._full_wanted):
                self._quiet_until = self._next_due = FOREVER
                return FOREVER
            if self._full_wanted or self._new_topics:
                wait = 0.0
            else:
                self._next_due = self._last_success + self._max_age
                self._quiet_until = self._next_due - self._backoff.maximum
                wait = self._next_due - now
                if wait >= self._backoff.maximum:  # later than any back-off ends
                    return wait
            if self._new_topics and self._failures == 0:
                return 0.0
            tries = max(self._failures, self._fruitless, 1)
            allowed = self._last_attempt + self._backoff.delay(tries) - now
            return max(0.0, wait, allowed if self._last_attempt > -FOREVER else 0.0)

    def wanted(self, now: float) -> list[str]:
        """The topics the next request should name; marks that request as under way."""
        with self._lock:
            self._in_flight = True
            self._quiet_until = -FOREVER
            self._last_attempt = now
            stale = now >= self._last_success + self._max_age
            if self._new_topics and not self._full_wanted and not stale:
                self._asked = set(self._new_topics)
            else:
                self._full_wanted = False
                self._asked = set(self._last_use)
            return sorted(self._asked)

    def answered(self, reply: MetadataReply, now: float) -> bool:
        """Publish what a broker answered; False when the answer was unusable (no brokers)."""
        brokers = {
            b.node_id: Broker(b.node_id, b.host, b.port, b.rack)
            for b in reply.brokers
            if b.node_id >= 0
        }
        if reply.error_code or not brokers:
            why = (
                BrokerError(reply.error_code)
                if reply.error_code
                else KprodError("no brokers in it")
            )
            self.failed(why, now)
            return False
        with self._lock:
            self._quiet_until = -FOREVER
            usable = [topic for topic in reply.topics if topic.name and topic.error_code == 0]
            self._troubles.answered((topic.name or "", topic.error_code) for topic in reply.topics)
            errors = self._troubles.topics
            # Not only those the answer mentions: one it leaves out would be due at once, for ever.
            self._new_topics -= self._asked
            for name, error in errors.items():
                if not error.retriable:  # nobody asks for it again until a send names it again
                    self._last_use.pop(name, None)
            snapshot = self.snapshot.with_topics(
                map(_topic_info, usable), brokers, reply.cluster_id
            )
            snapshot = self._without_idle(snapshot, now)
            self._fruitless = self._fruitless + 1 if snapshot == self.snapshot else 0
            self.snapshot = snapshot
            self._full_wanted = (
                self._full_wanted
                or any(error.retriable for error in errors.values())
                or any(_awaits_leader(p) for topic in usable for p in topic.partitions)
            )
            self._in_flight, self._failures = False, 0
            self._last_success = now
            self._answers += 1
            self._tell_waiters()
        if self.on_publish is not None:
            self.on_publish(snapshot)
        return True

    def failed(self, error: KprodError, now: float) -> None:
        """A metadata request failed, or could not be sent: try again after the back-off."""
        with self._lock:
            self._in_flight = False
            self._full_wanted = True
            self._quiet_until = -FOREVER
            self._failures += 1
            self._last_attempt = now
            self._troubles.request_failed(error)
            self._tell_waiters()

    def connection_failed(self, broker: str, error: KprodError) -> None:
        """A broker cannot be reached: the leaders may have moved, and waiters want to know why."""
        with self._lock:
            self._troubles.broker_failed(broker, error)
            self._ask_for_all()

    def rebootstrap(self) -> None:
        """Forget the brokers and who leads what: the cluster is asked for as if for the first time.

        Topics keep their number of partitions, so that ``send`` need not wait meanwhile.
        """
        with self._lock:
            self.snapshot = snapshot = self.snapshot.without_brokers()
            self._ask_for_all()
        if self.on_publish is not None:
            self.on_publish(snapshot)

    def request_update(self) -> None:
        """Something showed that the snapshot is old (leader moved, connection lost)."""
        with self._lock:
            self._ask_for_all()

    def _ask_for_all(self) -> None:
        """The next request names every topic in use; the lock is held."""
        self._full_wanted = bool(self._last_use)
        self._quiet_until = -FOREVER

    def take_leader_hints(self, hints: Mapping[TopicPartition, LeaderHint]) -> None:
        """Use the leaders that a produce response named (KIP-951)."""
        with self._lock:
            self.snapshot = self.snapshot.with_leaders(hints)

    def used(self, topics: Iterable[str], now: float) -> None:
        """Records of these topics were just sent: keep them in the snapshot."""
        for topic in topics:
            if topic in self._last_use:
                self._last_use[topic] = now  # no lock: only this thread takes topics out
            else:
                with self._lock:
                    self._last_use[topic] = now
                    self._quiet_until = -FOREVER

    def _without_idle(self, snapshot: ClusterSnapshot, now: float) -> ClusterSnapshot:
        idle = [name for name, last in self._last_use.items() if now - last > self._max_idle]
        for name in idle:
            del self._last_use[name]
        return snapshot.without_topics(idle) if idle else snapshot


def _awaits_leader(reply: PartitionReply) -> bool:
    """True for a partition whose lack of a leader should pass."""
    return reply.leader_id < 0 and reply.error_code in REFRESHES_METADATA


def _topic_info(reply: TopicReply) -> TopicInfo:
    """A topic from its part of the reply; partitions come in any order, holes have no leader.

    Numbers that cannot be, negative or far beyond the count, are passed by: memory is taken in
    proportion to what was received.
    """
    sane = [p for p in reply.partitions if 0 <= p.partition <= MOST_HOLES + len(reply.partitions)]
    count = max((p.partition for p in sane), default=-1) + 1
    infos = [PartitionInfo(number) for number in range(count)]
    for p in sane:
        infos[p.partition] = PartitionInfo(p.partition, p.leader_id, p.leader_epoch)
    return TopicInfo(reply.name or "", reply.topic_id, tuple(infos))
