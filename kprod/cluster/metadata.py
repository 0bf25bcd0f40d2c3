"""The cell that publishes cluster snapshots, and the times at which a new one is due.

Application threads wait here for a topic (``await_topic``); the sender's thread asks ``due``,
sends the request that ``wanted`` describes and reports with ``answered`` or ``failed``. The rules
are those of Kafka's ``Metadata`` and ``ProducerMetadata``: a refresh by age, a forced one, a
partial one for topics never seen, back-off after failures and after answers that brought nothing
new.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kprod.clock import Clock, ExponentialBackoff
from kprod.cluster.metadata_errors import MetadataErrors, Search
from kprod.cluster.snapshot import (
    ClusterSnapshot,
    LeaderHint,
    TopicInfo,
    awaits_leader,
    no_such_partition,
    topic_info,
)
from kprod.errors import (
    AuthenticationError,
    BrokerError,
    KprodError,
    KprodTimeoutError,
    ProducerClosedError,
)
from kprod.latch import Latch
from kprod.lock import Lock
from kprod.types import TopicPartition
from kprod.wire.control import MetadataReply

FOREVER = float("inf")


def _nothing(*_: object) -> None:
    """The reaction to an event that a listener does not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataListener:
    """Functions that ``Metadata`` calls, in the thread that reports the event.

    ``published``: a new snapshot is in force. ``changed``: ``look`` may find something new.
    ``wanted``: a caller waits for an answer, so the sender must look. ``forgotten``: nothing is
    sent to these topics any more. ``broker_failed``: a connection to the broker of that name ended
    in the error. ``throttled``: the broker of that address and node id asks for no requests for so
    many seconds (``throttle_time_ms``).
    """

    published: Callable[[ClusterSnapshot], None] = _nothing
    changed: Callable[[], None] = _nothing
    wanted: Callable[[], None] = _nothing
    forgotten: Callable[[set[str]], None] = _nothing
    broker_failed: Callable[[str, KprodError], None] = _nothing
    throttled: Callable[[str, int, float], None] = _nothing


class Metadata:
    """Holds the current snapshot. Thread-safe.

    ``snapshot`` is read without a lock. ``_lock`` guards every other field; nothing is called and
    nothing blocks while it is held.
    """

    def __init__(
        self, *, clock: Clock, max_age: float, max_idle: float, backoff: ExponentialBackoff
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self._listeners: tuple[MetadataListener, ...] = ()
        self.request_version = 0  # that of the last answer
        self._clock = clock
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._lock = Lock()
        self._changed = Latch()  # opens at the next change; see ``_next_change``
        self._last_use: dict[str, float] = {}
        self._new_topics: set[str] = set()
        self._asked: set[str] = set()  # those of the request that is under way
        self._dropped: set[str] = set()  # no longer in use, and not yet taken by ``dropped``
        self._full_wanted = False
        self._in_flight = False
        self._answers = 0
        self._told_by: dict[str, int] = {}  # the last answer about each topic of the snapshot
        self._errors = MetadataErrors()
        self._refusals = 0  # connections that ended in an AuthenticationError
        self._closed = False
        self._ended_by: KprodError | None = None  # raised then, if the sender broke off
        self._failures = 0
        self._fruitless = 0  # answers in a row that brought nothing new
        self._last_attempt = -FOREVER
        self._last_success = -FOREVER
        self._quiet_until = -FOREVER  # until then ``due`` need not look at any of the above,
        self._next_due = FOREVER  # for nothing is due before this

    def subscribe(self, listener: MetadataListener) -> None:
        """Call the functions of ``listener``, too. Only before the sender's first turn."""
        self._listeners = (*self._listeners, listener)

    # Application threads ----------------------------------------------------------------------

    def wake(self) -> None:
        """Let the sender look."""
        for listener in self._listeners:
            listener.wanted()

    def await_topic(
        self, topic: str, timeout: float, wake: Callable[[], None], partition: int | None = None
    ) -> TopicInfo:
        """The topic, waiting at most ``timeout`` seconds until it (and ``partition``) is known.

        ``wake`` is called after a request was noted down, so that the sender's thread looks.
        Raises BrokerError when a broker refuses the topic for good, AuthenticationError when it
        refuses us or we refuse it, PartitionError when it has told since that the topic has no such
        partition, ProducerClosedError after ``close``, KprodTimeoutError naming the last cause
        otherwise.
        """
        found = self.snapshot.topic(topic)
        if found is not None and (partition is None or partition < len(found)):
            return found
        deadline = self._clock.monotonic() + timeout
        search = self.search(topic, partition)
        while True:
            found, asked, changed = self.look(search)
            if found is not None:
                return found
            left = deadline - self._clock.monotonic()
            if asked:
                wake()
            elif left <= 0:
                raise self.not_found(search, timeout)
            else:
                changed.wait(left)

    def search(self, topic: str, partition: int | None) -> Search:
        """The argument of ``look``: a caller begins to wait for a topic, or a partition of it."""
        return Search(topic, partition, self._answers, self._refusals)

    def look(self, search: Search) -> tuple[TopicInfo | None, bool, Latch]:
        """One look for a topic, without waiting; raises as ``await_topic``, but for the time limit.

        The topic if it is known; whether the sender's thread must be woken as it has to ask; and
        what opens when there is something new. A caller that gives up looks at least
        twice: the first look notes what is wanted, so that the next call finds it.
        """
        with self._lock:
            topic, changed = search.topic, self._next_change()
            found = self.snapshot.topic(topic)
            if found is not None:
                if search.partition is None or search.partition < len(found):
                    return found, False, changed
                if self._told_by.get(topic, 0) > search.answers:
                    raise no_such_partition(found, search.partition)
            self._raise_refusal(topic, since=search.seen)
            if self._refusals > search.refusals:
                self._raise_unauthenticated()
            if self._closed:
                raise self._end(f"closed while topic {topic!r} was looked up")
            # Noted even when there is no time to wait: then the next call finds the topic. The
            # first time in any case: a caller that noted it before may have been interrupted then.
            asked = self._note_wanted(topic) or search.seen < 0
            search.seen = max(search.seen, self._answers)
            return None, asked, changed

    def await_cluster(self, timeout: float, wake: Callable[[], None]) -> ClusterSnapshot:
        """The cluster, waiting at most ``timeout`` seconds until a broker has told about it.

        ``wake`` as in ``await_topic``. Raises AuthenticationError as that does,
        ProducerClosedError after ``close``, KprodTimeoutError naming what every broker failed with.
        """
        deadline = self._clock.monotonic() + timeout
        refusals = self._refusals
        while True:
            with self._lock:
                if self.snapshot.brokers:
                    return self.snapshot
                if self._refusals > refusals:
                    self._raise_unauthenticated()
                if self._closed:
                    raise self._end("closed while the cluster was looked up")
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise self._errors.no_cluster(timeout)
                asked = not (self._full_wanted or self._in_flight)
                self._full_wanted = self._full_wanted or asked
                self._quiet_until = -FOREVER
                changed = self._next_change()
            if asked:
                wake()
            changed.wait(left)

    def _next_change(self) -> Latch:
        """Opens at the next change that callers wait for; the lock is held."""
        if self._changed.is_open:
            self._changed = Latch()
        return self._changed

    def _tell_waiters(self) -> None:
        """Something they may wait for has changed; the lock is held."""
        self._changed.open()  # the next caller makes another one: memory may have run out here

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
        refused = self._errors.topics.get(topic)
        if refused is not None and not refused.retriable and self._answers > since >= 0:
            raise copy.copy(refused)  # others may get it, too, and it must not grow with each

    def _raise_unauthenticated(self) -> None:
        """Trying again rarely helps (Kafka: ``Metadata.fatalError``); the sender does meanwhile."""
        refused = self._errors.unauthenticated
        if refused is not None:
            raise copy.copy(refused)

    def not_found(self, search: Search, timeout: float) -> KprodTimeoutError:
        """The error of a search that was given up after ``timeout`` seconds."""
        with self._lock:
            return self._errors.not_found(search, self.snapshot.topic(search.topic), timeout)

    def trouble(self, topic: str) -> KprodError | None:
        """The error that keeps news of ``topic`` away, from a broker or a connection, or None."""
        with self._lock:
            return self._errors.cause(topic)

    def age(self, now: float) -> float:
        """Seconds since the last answer about the cluster; 0 before the first. Any thread."""
        last = self._last_success
        return now - last if last > -FOREVER else 0.0

    def close(self, error: KprodError | None = None) -> None:
        """The producer closes: a caller that waits gets ``error``, None: ProducerClosedError."""
        with self._lock:
            self._closed, self._ended_by = True, self._ended_by or error
            self._tell_waiters()
        for listener in self._listeners:
            listener.changed()

    def _end(self, what: str) -> KprodError:
        return ProducerClosedError(what) if self._ended_by is None else copy.copy(self._ended_by)

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

    @property
    def in_flight(self) -> bool:
        """True while a request that ``wanted`` described has no end."""
        return self._in_flight

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
        """Publish a broker's answer; False when the answer is unusable (no brokers)."""
        brokers = {broker.node_id: broker for broker in reply.brokers if broker.node_id >= 0}
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
            self._errors.answered((topic.name or "", topic.error_code) for topic in reply.topics)
            errors = self._errors.topics
            # Not only those the answer mentions: one it leaves out would be due at once, for ever.
            self._new_topics = self._new_topics - self._asked  # a set that was large stays it
            self._asked = set()
            self._answers += 1
            self._told_by.update((topic.name or "", self._answers) for topic in usable)
            for name, error in errors.items():
                if not error.retriable and self._last_use.pop(name, None) is not None:
                    self._dropped.add(name)  # no request asks for it until a send names it again
            snapshot = self.snapshot.with_topics(map(topic_info, usable), brokers, reply.cluster_id)
            snapshot = self._without_idle(snapshot, now)
            self._fruitless = self._fruitless + 1 if snapshot == self.snapshot else 0
            self.snapshot = snapshot
            self._full_wanted = (
                self._full_wanted
                or any(error.retriable for error in errors.values())
                or any(awaits_leader(p) for topic in usable for p in topic.partitions)
            )
            self._in_flight, self._failures = False, 0
            self._last_success = now
            self._tell_waiters()
        for listener in self._listeners:
            listener.changed()
            listener.published(snapshot)
        return True

    def failed(self, error: KprodError, now: float) -> None:
        """A metadata request failed, or could not be sent: try again after the back-off."""
        with self._lock:
            self._in_flight = False
            self._full_wanted = True
            self._quiet_until = -FOREVER
            self._failures += 1
            self._last_attempt = now
            self._errors.request_failed(error)
            self._tell_waiters()
        for listener in self._listeners:
            listener.changed()

    def connection_failed(self, broker: str, error: KprodError) -> None:
        """A broker cannot be reached: the leaders may have moved, and waiters want to know why."""
        with self._lock:
            self._errors.broker_failed(broker, error)
            self._ask_for_all()
            if isinstance(error, AuthenticationError):
                self._refusals += 1
                self._tell_waiters()
        for listener in self._listeners:
            listener.changed()
            listener.broker_failed(broker, error)

    def throttled(self, node_id: int, milliseconds: int) -> None:
        """A broker's answer says for how long it wants no requests, or has delayed it; 0: not."""
        broker = self.snapshot.brokers.get(node_id)
        if milliseconds and broker is not None:
            address = f"{broker.host}:{broker.port}"
            for listener in self._listeners:
                listener.throttled(address, node_id, milliseconds / 1000)

    def rebootstrap(self) -> None:
        """Forget the brokers and leaders: the next request asks as if it were the first.

        Topics keep their number of partitions, so that ``send`` need not wait meanwhile.
        """
        with self._lock:
            self.snapshot = snapshot = self.snapshot.without_brokers()
            self._ask_for_all()
        for listener in self._listeners:
            listener.published(snapshot)

    def request_update(self, *, brokers: bool = False) -> None:
        """Something showed that the snapshot is old; ``brokers``: also while no topic is in use."""
        with self._lock:
            self._ask_for_all()
            self._full_wanted = self._full_wanted or brokers

    def _ask_for_all(self) -> None:
        """The next request names every topic in use; the lock is held."""
        self._full_wanted = self._full_wanted or bool(self._last_use)
        self._quiet_until = -FOREVER

    def take_leader_hints(self, hints: Mapping[TopicPartition, LeaderHint]) -> None:
        """Use the leaders that a produce response named (KIP-951)."""
        with self._lock:
            self.snapshot = self.snapshot.with_leaders(hints)

    def used(self, topics: Iterable[str], now: float) -> None:
        """Records of these topics were just sent, or wait to be: keep them in the snapshot."""
        for topic in topics:
            if topic in self._last_use:
                self._last_use[topic] = now  # no lock: only this thread takes topics out
            else:
                with self._lock:
                    self._last_use[topic] = now
                    self._quiet_until = -FOREVER

    @property
    def dropped(self) -> set[str]:
        """The topics that went out of use, are not in use again, and were not forgotten yet."""
        with self._lock:
            self._dropped.difference_update(self._last_use)
            return set(self._dropped)

    def forgotten(self, topics: set[str]) -> None:
        """Nothing of these topics is kept any more, once every listener knows."""
        for listener in self._listeners:
            listener.forgotten(topics)
        with self._lock:
            self._dropped = self._dropped.difference(topics)
            told_by = self._told_by.items()
            self._told_by = {name: told for name, told in told_by if name not in topics}

    def _without_idle(self, snapshot: ClusterSnapshot, now: float) -> ClusterSnapshot:
        idle = {name for name, last in self._last_use.items() if now - last > self._max_idle}
        if not idle:
            return snapshot
        # A copy: a dict never shrinks by itself.
        last_use = self._last_use.items()
        self._last_use = {name: last for name, last in last_use if name not in idle}
        self._dropped.update(idle)
        return snapshot.without_topics(idle)
