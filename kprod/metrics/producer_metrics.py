"""The counters of one producer, updated per batch or request, and the metrics derived from them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from kprod.lock import Lock
from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    TRANSACTION_TIMES,
    Metric,
    Values,
    View,
)


class Batch(Protocol):
    """The attributes of a batch that are counted."""

    @property
    def tp(self) -> tuple[str, int]: ...

    @property
    def record_count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def uncompressed_bytes(self) -> int: ...

    @property
    def max_record_size(self) -> int: ...

    @property
    def created_at(self) -> float: ...

    @property
    def last_attempt_at(self) -> float: ...


@dataclass(eq=False)
class Counters:
    """Numbers that only grow, one per field; the fields in ``PEAKS`` start again in each window."""

    PEAKS: ClassVar[tuple[str, ...]] = ()

    def values(self) -> Values:
        """The current values of all counters."""
        return {counter.name: getattr(self, counter.name) for counter in fields(self)}

    def end_window(self) -> Values:
        """The values at the end of a window; resets the peaks."""
        ended = self.values()
        for name in self.PEAKS:
            setattr(self, name, 0)
        return ended

    def add(self, other: Counters) -> None:
        """Add the counts of ``other``, which has the same fields; peaks are unchanged."""
        for name, value in other.values().items():
            if name not in self.PEAKS:
                setattr(self, name, getattr(self, name) + value)


@dataclass(eq=False)
class BatchCounters(Counters):
    """The batches of one topic, by outcome.

    ``records_sent`` were acknowledged (with acks=0: written to the socket). ``bytes_sent`` counts
    acknowledged batches as they were sent, ``uncompressed_bytes`` their records before compression.
    """

    records_sent: int = 0
    records_failed: int = 0
    records_retried: int = 0
    batches_sent: int = 0
    bytes_sent: int = 0
    uncompressed_bytes: int = 0


@dataclass(eq=False)
class NodeCounters(Counters):
    """The traffic with one broker.

    ``answers``: the number of Produce requests that were answered (with acks=0: written to the
    socket).
    """

    PEAKS = ("latency_max", "request_size_max")

    requests: int = 0
    request_size_max: int = 0
    responses: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    answers: int = 0
    latency_seconds: float = 0.0
    latency_max: float = 0.0

    def sent(self, nbytes: int) -> None:
        """A request of ``nbytes`` was made."""
        self.requests += 1
        if nbytes > self.request_size_max:
            self.request_size_max = nbytes


Groups: TypeAlias = dict[str, dict[str, float]]
"""Metrics by group and name."""

FIRST = float("-inf")
NANOSECONDS = 1e9


class Mark(NamedTuple):
    """The values of all counters at the end of a window. The peaks are those of the window."""

    time: float
    producer: Values
    topics: dict[str, Values]
    nodes: dict[int, Values]


@dataclass(eq=False)
class ProducerCounters(Counters):
    """The counters of a whole producer, without the sums over topics or brokers.

    ``connections_lost``: the connections that failed, and the failed attempts to make one.
    """

    PEAKS = ("queued_max", "batch_size_max", "record_size_max", "throttle_ms_max")

    queued_seconds: float = 0.0
    queued_max: float = 0.0
    batch_size_max: int = 0
    record_size_max: int = 0
    batches_split: int = 0
    throttle_ms: int = 0
    throttle_ms_max: int = 0
    connections_made: int = 0
    connections_closed: int = 0
    connections_lost: int = 0
    sends_without_room: int = 0
    flush_seconds: float = 0.0
    letters_stored: int = 0
    letters_lost: int = 0


class ProducerMetrics(ProducerCounters):
    """Everything counted since the producer was made.

    Updated per batch or request, never per record. Only the sender thread calls the methods that
    update it, except those in the section for any thread. Any thread may read recent values. Rates,
    averages and maxima cover the last ``samples`` windows of ``window`` seconds; the network ends a
    window by calling ``mark`` at ``mark_due``. Times are on the sender's clock.
    """

    def __init__(self, samples: int = 2, window: float = 30.0) -> None:
        super().__init__()
        self.topics: dict[str, BatchCounters] = {}
        self.nodes: dict[int, NodeCounters] = {}
        self._forgotten = BatchCounters()  # the sums of removed topics
        self._gone = NodeCounters()  # the sums of removed brokers
        self._gauges: Callable[[float], Mapping[str, float]] = _no_gauges
        self.mark_due = FIRST
        self._samples = samples
        self._window = window
        self._marks: tuple[Mark, ...] = ()
        self._spent = dict.fromkeys((gauge.name for gauge in TRANSACTION_TIMES), 0.0)
        self._lock = Lock()  # guards callers' counters, the marks, and the removal of topics

    # The sender's thread --------------------------------------------------------------------------

    def acknowledged(self, batch: Batch) -> None:
        """A batch was acknowledged, and its memory is still there."""
        name, nbytes, largest = batch.tp[0], batch.size, batch.max_record_size
        topic = self.topics.get(name) or self.topic(name)
        topic.records_sent += batch.record_count
        topic.batches_sent += 1
        topic.bytes_sent += nbytes
        topic.uncompressed_bytes += batch.uncompressed_bytes
        queued = batch.last_attempt_at - batch.created_at
        self.queued_seconds += queued
        if queued > self.queued_max:
            self.queued_max = queued
        if nbytes > self.batch_size_max:
            self.batch_size_max = nbytes
        if largest > self.record_size_max:
            self.record_size_max = largest

    def failed(self, batch: Batch) -> None:
        """The records of a batch failed."""
        self.topic(batch.tp[0]).records_failed += batch.record_count

    def retried(self, batch: Batch) -> None:
        """A batch will be retried."""
        self.topic(batch.tp[0]).records_retried += batch.record_count

    def answered(self, node_id: int, seconds: float, throttle_ms: int) -> None:
        """A produce request was answered after ``seconds``; the throttle time is in ms."""
        node = self.nodes.get(node_id) or self.node(node_id)
        node.answers += 1
        node.latency_seconds += seconds
        if seconds > node.latency_max:
            node.latency_max = seconds
        if throttle_ms:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)

    def topic(self, name: str) -> BatchCounters:
        """The counters of one topic."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = BatchCounters()
        return counters

    def node(self, node_id: int) -> NodeCounters:
        """The counters of one broker; bootstrap addresses have ids -1, -2, ..."""
        counters = self.nodes.get(node_id)
        if counters is None:
            counters = self.nodes[node_id] = NodeCounters()
        return counters

    def forget(self, topics: Iterable[str]) -> None:
        """Forget these topics; their counts stay in the sums."""
        with self._lock:
            for name in topics:
                gone = self.topics.get(name)
                if gone is not None:
                    self._forgotten.add(gone)
                    del self.topics[name]
                    for mark in self._marks:
                        mark.topics.pop(name, None)
            self.topics = dict(self.topics)  # a dict does not shrink by itself

    def keep_nodes(self, known: Container[int]) -> None:
        """Forget brokers that are not among ``known``; their counts stay in the sums."""
        with self._lock:
            for node_id in [node_id for node_id in self.nodes if node_id not in known]:
                self._gone.add(self.nodes.pop(node_id))
                for mark in self._marks:
                    mark.nodes.pop(node_id, None)

    def mark(self, now: float) -> None:
        """End a window: record all values, and begin the next one."""
        mark = Mark(
            now,
            self._with_sums(self.end_window()),
            {name: topic.end_window() for name, topic in self.topics.items()},
            {node_id: node.end_window() for node_id, node in self.nodes.items()},
        )
        with self._lock:
            self._marks = (*self._marks, mark)[-self._samples :]
        self.mark_due = now + self._window

    def _with_sums(self, values: Values) -> Values:
        """The values with the sums over all topics and brokers."""
        topics = self._all_topics()
        for name in self._forgotten.values():
            values[name] = sum(map(attrgetter(name), topics))
        nodes = [self._gone, *list(self.nodes.values())]
        for name in self._gone.values():
            total = max if name in NodeCounters.PEAKS else sum
            values[name] = total(map(attrgetter(name), nodes))
        return values

    def _all_topics(self) -> list[BatchCounters]:
        return [self._forgotten, *list(self.topics.values())]

    # Any thread -----------------------------------------------------------------------------------

    def found_no_room(self) -> None:
        """``send`` failed because no memory became free in time."""
        with self._lock:
            self.sends_without_room += 1

    def flushed(self, seconds: float) -> None:
        """A ``flush`` took ``seconds``."""
        with self._lock:
            self.flush_seconds += seconds

    def dead_letter(self, stored: bool) -> None:
        """A dead letter was stored in its topic, or could not be stored."""
        with self._lock:
            if stored:
                self.letters_stored += 1
            else:
                self.letters_lost += 1

    def spent(self, name: str, seconds: float) -> None:
        """A transactional call took ``seconds``; ``name`` is one of ``TRANSACTION_TIMES``."""
        with self._lock:
            self._spent[name] += seconds * NANOSECONDS

    @property
    def records_sent(self) -> int:
        """The number of records that were acknowledged."""
        with self._lock:  # otherwise a topic could be counted twice while it is removed
            return sum(topic.records_sent for topic in self._all_topics())

    @property
    def records_failed(self) -> int:
        """The number of records that failed."""
        with self._lock:
            return sum(topic.records_failed for topic in self._all_topics())

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self.connections_made - self.connections_closed

    def look_up(self, gauges: Callable[[float], Mapping[str, float]]) -> None:
        """Set the function that returns the gauges; any thread may call it."""
        self._gauges = gauges

    def groups(self, now: float) -> Groups:
        """The metrics by group and name."""
        gauges = self._gauges(now)
        with self._lock:
            written, topics, nodes = self._marks, [*self.topics.items()], [*self.nodes.items()]
            values = self._with_sums(self.values())
            spent = dict(self._spent)
        marks = [m for m in written if now - m.time < self._samples * self._window]
        past = [mark.producer for mark in marks]
        view = _view(now, values, past, marks)
        groups = {"producer-metrics": {**_read(PRODUCER_METRICS, view), **gauges, **spent}}
        for name, topic in topics:
            past = [mark.topics.get(name, _NO_BATCHES) for mark in marks]
            view = _view(now, topic.values(), past, marks)
            groups[f"producer-topic-metrics.{name}"] = _read(TOPIC_METRICS, view)
        for node_id, node in nodes:
            past = [mark.nodes.get(node_id, _NO_TRAFFIC) for mark in marks]
            view = _view(now, node.values(), past, marks)
            groups[f"producer-node-metrics.node-{node_id}"] = _read(NODE_METRICS, view)
        return groups


def _no_gauges(_now: float) -> Mapping[str, float]:
    return {}


_NO_BATCHES = BatchCounters().values()
_NO_TRAFFIC = NodeCounters().values()


def _read(metrics: tuple[Metric, ...], view: View) -> dict[str, float]:
    return {metric.name: metric.read(view) for metric in metrics}


def _view(now: float, values: Values, past: list[Values], marks: list[Mark]) -> View:
    """The view of counters: ``values`` now, and ``past`` values at each of ``marks``."""
    if not past:  # the latest mark is too old to count as recent
        return View(values, values, (), 0.0)
    return View(values, past[0], (*past[1:], values), now - marks[0].time)
