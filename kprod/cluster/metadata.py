"""Publishes cluster snapshots, and decides when a metadata update is due.

Application threads wait here for a topic (``await_topic``). The sender thread checks ``due``, sends
the request that ``wanted`` describes, and reports with ``answered`` or ``failed``. The rules are
those of Kafka's ``Metadata`` and ``ProducerMetadata``: updates by age, forced updates, partial
updates for new topics, and back-off after failures and after answers without changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
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
    """Ignore an event that a listener does not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataListener:
    """Functions that ``Metadata`` calls, in the thread that reports the event.

    ``published``: there is a new snapshot. ``changed``: ``check`` may give a new result.
    ``wanted``: a caller waits for an answer, so the sender must check. ``due``: the result of
    ``Metadata.due`` has changed; it is called under the lock, and must not block. ``forgotten``:
    these topics are no longer in use. ``broker_failed``: a connection to the named broker failed
    with the error.
    ``throttled``: the broker with that address and node id wants no requests for that many seconds
    (``throttle_time_ms``).
    """

    published: Callable[[ClusterSnapshot], None] = _nothing
    changed: Callable[[], None] = _nothing
    wanted: Callable[[], None] = _nothing
    due: Callable[[], None] = _nothing
    forgotten: Callable[[set[str]], None] = _nothing
    broker_failed: Callable[[str, KprodError], None] = _nothing
    throttled: Callable[[str, int, float], None] = _nothing


class Metadata:
    """Holds the current snapshot. Thread-safe.

    ``snapshot`` is read without a lock. ``_lock`` guards every other field; code under the lock
    does not block, and calls no listener except ``MetadataListener.due``.
    """

    def __init__(
        self, *, clock: Clock, max_age: float, max_idle: float, backoff: ExponentialBackoff
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self._listeners: tuple[MetadataListener, ...] = ()
        self.request_version = 0  # version of the last response
        self._clock = clock
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._lock = Lock()
        self._changed = Latch()  # opens at the next change; see ``_next_change``
        self._last_use: dict[str, float] = {}
        self._new_topics: set[str] = set()
        self._asked: set[str] = set()  # topics of the request in flight
        self._dropped: set[str] = set()  # no longer in use, and not yet taken by ``dropped``
        self._full_wanted = False
        self._in_flight = False
        self._answers = 0
        self._answered_by: dict[str, int] = {}  # number of the last answer about each topic
        self._errors = MetadataErrors()
        self._refusals = 0  # connections that ended in an AuthenticationError
        self._closed = False
        self._ended_by: KprodError | None = None  # raised after close, if the sender crashed
        self._failures = 0
        self._fruitless = 0  # consecutive answers without a change
        self._last_attempt = -FOREVER
        self._last_success = -FOREVER

    def subscribe(self, listener: MetadataListener) -> None:
        """Add a listener. Only before the sender loop starts."""
        self._listeners = (*self._listeners, listener)

    # Application threads ----------------------------------------------------------------------

    def wake(self) -> None:
        """Let the sender check whether a request is due."""
        for listener in self._listeners:
            listener.wanted()

    def await_topic(
        self, topic: str, timeout: float, wake: Callable[[], None], partition: int | None = None
    ) -> TopicInfo:
        """The topic, waiting at most ``timeout`` seconds until it (and ``partition``) is known.

        ``wake`` is called to wake the sender thread after a topic is added to the next request.

        Raises KprodTimeoutError with the last cause, and ProducerClosedError after ``close``. Some
        errors do not wait for the timeout: BrokerError if a broker refuses the topic and a retry
        does not help; AuthenticationError if broker and client cannot authenticate each other;
        PartitionError if an answer since the call says that the topic does not have the partition.
        """
        found = self.snapshot.topic(topic)
        if found is not None and (partition is None or partition < len(found)):
            return found
        deadline = self._clock.monotonic() + timeout
        search = self.search(topic, partition)
        while True:
            found, asked, changed = self.check(search)
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
        """Begin a search for a topic, or a partition of it: the argument of ``check``."""
        return Search(topic, partition, self._answers, self._refusals)

    def check(self, search: Search) -> tuple[TopicInfo | None, bool, Latch]:
        """Check for a topic without waiting. Raises like ``await_topic``, except for the timeout.

        Returns the topic if it is known; whether the sender must be woken to send a request; and a
        latch that opens at the next change. A caller should check at least twice before it times
        out: the first check requests the topic.
        """
        with self._lock:
            topic, changed = search.topic, self._next_change()
            found = self.snapshot.topic(topic)
            if found is not None:
                if search.partition is None or search.partition < len(found):
                    return found, False, changed
                if self._answered_by.get(topic, 0) > search.answers:
                    raise no_such_partition(found, search.partition)
            self._raise_refusal(topic, since=search.seen)
            if self._refusals > search.refusals:
                self._raise_unauthenticated()
            if self._closed:
                raise self._end(f"closed while topic {topic!r} was looked up")
            # Requested even if there is no time to wait: then the next call finds the topic. On the
            # first check always: a caller that requested it before may have been interrupted.
            asked = self._note_wanted(topic) or search.seen < 0
            search.seen = max(search.seen, self._answers)
            return None, asked, changed

    def await_cluster(
        self, timeout: float, wake: Callable[[], None], give_up_after: int = 0
    ) -> ClusterSnapshot:
        """The cluster, waiting at most ``timeout`` seconds for a broker's metadata.

        ``wake`` is called to wake the sender thread. If ``give_up_after`` is not 0, the wait ends
        earlier, after that many brokers could not be reached. Raises AuthenticationError like
        ``await_topic``, ProducerClosedError after ``close``, and KprodTimeoutError with the errors
        of up to five brokers.
        """
        began = self._clock.monotonic()
        deadline = began + timeout
        refusals, failures = self._refusals, self._errors.failures
        while True:
            with self._lock:
                if self.snapshot.brokers:
                    return self.snapshot
                if self._refusals > refusals:
                    self._raise_unauthenticated()
                if self._closed:
                    raise self._end("closed while the cluster was looked up")
                now = self._clock.monotonic()
                left = deadline - now
                if give_up_after and self._errors.failed_since(failures) >= give_up_after:
                    raise self._errors.no_cluster(now - began)
                if left <= 0:
                    raise self._errors.no_cluster(timeout)
                asked = not (self._full_wanted or self._in_flight)
                if asked:
                    self._full_wanted = True
                    self._report_due()
                changed = self._next_change()
            if asked:
                wake()
            changed.wait(left)

    def _next_change(self) -> Latch:
        """The latch of the next change that callers wait for; the lock is held."""
        if self._changed.is_open:
            self._changed = Latch()
        return self._changed

    def _wake_waiters(self) -> None:
        """Wake all callers that wait for a change. Called with the lock held."""
        self._changed.open()  # the next caller makes a new one

    def _report_due(self) -> None:
        """Report that the result of ``due`` has changed; the lock is held."""
        for listener in self._listeners:
            listener.due()

    def _note_wanted(self, topic: str) -> bool:
        """Add ``topic`` to the next request; True if the sender thread must be woken for it."""
        known = topic in self._last_use
        self._last_use[topic] = self._clock.monotonic()
        if not known:
            self._new_topics.add(topic)
        elif self._full_wanted or self._in_flight or topic in self._new_topics:
            return False
        else:
            self._full_wanted = True
        self._report_due()
        return True

    def _raise_refusal(self, topic: str, since: int) -> None:
        refused = self._errors.topics.get(topic)
        if refused is not None and not refused.retriable and self._answers > since >= 0:
            raise copy.copy(refused)  # a copy: each raise extends the traceback

    def _raise_unauthenticated(self) -> None:
        """Raise the latest authentication error: waiting rarely helps (``Metadata.fatalError``)."""
        refused = self._errors.unauthenticated
        if refused is not None:
            raise copy.copy(refused)

    def not_found(self, search: Search, timeout: float) -> KprodTimeoutError:
        """The error of a search that timed out after ``timeout`` seconds."""
        with self._lock:
            return self._errors.not_found(search, self.snapshot.topic(search.topic), timeout)

    def last_error(self, topic: str) -> KprodError | None:
        """The error of a broker or connection that prevents updates of ``topic``, or None."""
        with self._lock:
            return self._errors.cause(topic)

    def age(self, now: float) -> float:
        """Seconds since the last metadata response; 0 before the first. Any thread."""
        last = self._last_success
        return now - last if last > -FOREVER else 0.0

    def close(self, error: KprodError | None = None) -> None:
        """Close: waiting callers raise ``error``, or ProducerClosedError if it is None."""
        with self._lock:
            self._closed, self._ended_by = True, self._ended_by or error
            self._wake_waiters()
        for listener in self._listeners:
            listener.changed()

    def _end(self, what: str) -> KprodError:
        return ProducerClosedError(what) if self._ended_by is None else copy.copy(self._ended_by)

    # The sender's thread ----------------------------------------------------------------------

    def due(self, now: float) -> float:
        """Seconds until a metadata request is due: 0.0 for now, infinite while one is in flight."""
        with self._lock:
            if self._in_flight or not (self._last_use or self._full_wanted):
                return FOREVER
            if self._full_wanted or self._new_topics:
                wait = 0.0
            else:
                wait = self._last_success + self._max_age - now
                if wait >= self._backoff.maximum:  # later than any back-off ends
                    return wait
            if self._new_topics and self._failures == 0:
                return 0.0
            tries = max(self._failures, self._fruitless, 1)
            allowed = self._last_attempt + self._backoff.delay(tries) - now
            return max(0.0, wait, allowed if self._last_attempt > -FOREVER else 0.0)

    @property
    def in_flight(self) -> bool:
        """True while a request that ``wanted`` described is in flight."""
        return self._in_flight

    def wanted(self, now: float) -> list[str]:
        """The topics of the next request; marks that request as in flight."""
        with self._lock:
            self._in_flight = True
            self._last_attempt = now
            stale = now >= self._last_success + self._max_age
            if self._new_topics and not self._full_wanted and not stale:
                self._asked = set(self._new_topics)
            else:
                self._full_wanted = False
                self._asked = set(self._last_use)
            return sorted(self._asked)

    def answered(self, reply: MetadataReply, now: float) -> bool:
        """Publish a broker's answer. False if it contains an error or no brokers."""
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
            self._report_due()
            usable = [topic for topic in reply.topics if topic.name and topic.error_code == 0]
            self._errors.answered((topic.name or "", topic.error_code) for topic in reply.topics)
            errors = self._errors.topics
            # All requested ones: a topic that the answer leaves out would be due again and again.
            self._new_topics = self._new_topics - self._asked  # new: a set does not shrink
            self._asked = set()
            self._answers += 1
            self._answered_by.update((topic.name or "", self._answers) for topic in usable)
            for name, error in errors.items():
                if not error.retriable and self._last_use.pop(name, None) is not None:
                    self._dropped.add(name)  # not requested until a send uses it again
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
            self._wake_waiters()
        for listener in self._listeners:
            listener.changed()
            listener.published(snapshot)
        return True

    def failed(self, error: KprodError, now: float) -> None:
        """A metadata request failed, or could not be sent: retry after the back-off."""
        with self._lock:
            self._in_flight = False
            self._full_wanted = True
            self._report_due()
            self._failures += 1
            self._last_attempt = now
            self._errors.request_failed(error)
            self._wake_waiters()
        for listener in self._listeners:
            listener.changed()

    def connection_failed(self, broker: str, error: KprodError) -> None:
        """A broker cannot be reached: request an update, because leaders may have moved.

        The errors of callers that wait for metadata name the broker.
        """
        with self._lock:
            self._errors.broker_failed(broker, error)
            self._ask_for_all()
            if isinstance(error, AuthenticationError):
                self._refusals += 1
            self._wake_waiters()
        for listener in self._listeners:
            listener.changed()
            listener.broker_failed(broker, error)

    def throttled(self, node_id: int, milliseconds: int) -> None:
        """A broker has throttled the client or delayed an answer. 0 milliseconds have no effect."""
        broker = self.snapshot.brokers.get(node_id)
        if milliseconds and broker is not None:
            address = f"{broker.host}:{broker.port}"
            for listener in self._listeners:
                listener.throttled(address, node_id, milliseconds / 1000)

    def rebootstrap(self) -> None:
        """Forget brokers and leaders: the next request starts again with the bootstrap servers.

        Topics keep their partition counts, so that ``send`` need not wait meanwhile.
        """
        with self._lock:
            self.snapshot = snapshot = self.snapshot.without_brokers()
            self._ask_for_all()
        for listener in self._listeners:
            listener.published(snapshot)

    def request_update(self, *, brokers: bool = False) -> None:
        """Request an update.

        If no topic is in use, this has no effect unless ``brokers`` is True.
        """
        with self._lock:
            self._ask_for_all(even_for_none=brokers)

    def _ask_for_all(self, *, even_for_none: bool = False) -> None:
        """Put every topic in use into the next request, if there is any; the lock is held."""
        if not self._full_wanted and (self._last_use or even_for_none):
            self._full_wanted = True
            self._report_due()

    def take_leader_hints(self, hints: Mapping[TopicPartition, LeaderHint]) -> None:
        """Apply the leaders named in a produce response (KIP-951)."""
        with self._lock:
            self.snapshot = self.snapshot.with_leaders(hints)

    def used(self, topics: Mapping[str, float]) -> None:
        """Topics are in use: when their records were sent last, or now, because some wait."""
        with self._lock:
            for topic, when in topics.items():
                if topic not in self._last_use:
                    self._report_due()
                self._last_use[topic] = max(when, self._last_use.get(topic, when))

    @property
    def dropped(self) -> set[str]:
        """The topics that are no longer in use and not forgotten yet."""
        with self._lock:
            self._dropped.difference_update(self._last_use)
            return set(self._dropped)

    def forgotten(self, topics: set[str]) -> None:
        """Remove all state of these topics, after notifying the listeners."""
        for listener in self._listeners:
            listener.forgotten(topics)
        with self._lock:
            self._dropped = self._dropped.difference(topics)
            answered_by = self._answered_by.items()
            self._answered_by = {name: answer for name, answer in answered_by if name not in topics}

    def _without_idle(self, snapshot: ClusterSnapshot, now: float) -> ClusterSnapshot:
        idle = {name for name, last in self._last_use.items() if now - last > self._max_idle}
        if not idle:
            return snapshot
        # A copy: a dict does not shrink by itself.
        last_use = self._last_use.items()
        self._last_use = {name: last for name, last in last_use if name not in idle}
        self._dropped.update(idle)
        return snapshot.without_topics(idle)
