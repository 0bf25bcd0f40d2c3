"""The counters of one producer, and how they become metrics under Kafka's names."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple, TypeAlias

from kprod.metrics.counters import Batch, BatchCounters, NodeCounters, ProducerCounters, Values
from kprod.metrics.table import NODE_METRICS, PRODUCER_METRICS, TOPIC_METRICS, Metric
from kprod.metrics.view import View

Groups: TypeAlias = dict[str, dict[str, float]]
"""Metrics by group and name."""

FIRST = float("-inf")


class Mark(NamedTuple):
    """What all counters said when a window ended; the peaks are that window's."""

    time: float
    producer: Values
    topics: dict[str, Values]
    nodes: dict[int, Values]


class ProducerMetrics(ProducerCounters):
    """Everything counted since the producer was made.

    Changed by the sender's thread only, once per batch or request, never per record; what other
    threads may call says so. Reading from any thread gives a recent value. Rates, averages and
    maxima are those of the last ``samples`` windows of ``window`` seconds: whoever drives the
    sender calls ``mark`` when ``mark_due`` has come. Times are on the sender's clock.
    """

    def __init__(self, samples: int = 2, window: float = 30.0) -> None:
        super().__init__()
        self.topics: dict[str, BatchCounters] = {}
        self.nodes: dict[int, NodeCounters] = {}
        self.mark_due = FIRST
        self._samples = samples
        self._window = window
        self._marks: tuple[Mark, ...] = ()
        self._lock = threading.Lock()  # guards what callers count, and which marks there are

    # The sender's thread --------------------------------------------------------------------------

    def acknowledged(
        self,
        topic_name: str,
        records: int,
        nbytes: int,
        uncompressed: int,
        largest: int,
        queued: float,
    ) -> None:
        """A batch was acknowledged that had waited ``queued`` seconds before its last attempt.

        It took ``nbytes`` on the wire; its records took ``uncompressed`` bytes before compression,
        the largest of them ``largest``.
        """
        topic = self.topic(topic_name)
        topic.records_sent += records
        topic.batches_sent += 1
        topic.bytes_sent += nbytes
        topic.uncompressed_bytes += uncompressed
        self.records_sent += records
        self.queued_seconds += queued
        self.queued_max = max(self.queued_max, queued)
        self.batch_size_max = max(self.batch_size_max, nbytes)
        self.record_size_max = max(self.record_size_max, largest)

    def failed(self, batch: Batch) -> None:
        """The records of a batch ended in an error."""
        topic = self.topic(batch.tp[0])
        topic.records_failed += batch.record_count
        self.records_failed += batch.record_count

    def retried(self, batch: Batch) -> None:
        """A batch will be sent once more."""
        topic = self.topic(batch.tp[0])
        topic.records_retried += batch.record_count
        self.records_retried += batch.record_count

    def answered(self, node_id: int, seconds: float, throttle_ms: int) -> None:
        """A produce request was answered after ``seconds``; the broker throttles us."""
        self.answers += 1
        self.latency_seconds += seconds
        self.latency_max = max(self.latency_max, seconds)
        self.node(node_id).answered(seconds)
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

    def mark(self, now: float) -> None:
        """A window has ended: write everything down, begin the next."""
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
        """With what all topics, and all brokers, add up to."""
        for name in ("batches_sent", "bytes_sent", "uncompressed_bytes"):
            values[name] = sum(getattr(topic, name) for topic in list(self.topics.values()))
        for name in ("requests", "bytes_out", "bytes_in"):
            values[name] = sum(getattr(node, name) for node in list(self.nodes.values()))
        return values

    # Any thread -----------------------------------------------------------------------------------

    def found_no_room(self) -> None:
        """A ``send`` ended without room for its record."""
        with self._lock:
            self.sends_without_room += 1

    def flushed(self, seconds: float) -> None:
        """A ``flush`` took that long."""
        with self._lock:
            self.flush_seconds += seconds

    @property
    def connections(self) -> int:
        """Connections there are."""
        return self.connections_made - self.connections_closed

    def groups(self, now: float, gauges: Mapping[str, float]) -> Groups:
        """The metrics by group and name; ``gauges`` are those that are not counted here."""
        with self._lock:
            written = self._marks
        marks = [m for m in written if now - m.time < self._samples * self._window]
        past = list(map(attrgetter("producer"), marks))
        view = _view(now, self._with_sums(self.values()), past, marks)
        groups = {"producer-metrics": {**_read(PRODUCER_METRICS, view), **gauges}}
        for name, topic in list(self.topics.items()):
            past = _past(map(attrgetter("topics"), marks), name, _NO_BATCHES)
            view = _view(now, topic.values(), past, marks)
            groups[f"producer-topic-metrics.{name}"] = _read(TOPIC_METRICS, view)
        for node_id, node in list(self.nodes.items()):
            past = _past(map(attrgetter("nodes"), marks), node_id, _NO_TRAFFIC)
            view = _view(now, node.values(), past, marks)
            groups[f"producer-node-metrics.node-{node_id}"] = _read(NODE_METRICS, view)
        return groups


_NO_BATCHES = BatchCounters().values()
_NO_TRAFFIC = NodeCounters().values()


def _read(metrics: tuple[Metric, ...], view: View) -> dict[str, float]:
    return {metric.name: metric.read(view) for metric in metrics}


def _past(windows: Iterable[Mapping[Any, Values]], name: object, none: Values) -> list[Values]:
    """What each of the windows says of one topic or broker; ``none``: nothing."""
    return list(map(methodcaller("get", name, none), windows))


def _view(now: float, values: Values, past: list[Values], marks: list[Mark]) -> View:
    """``past`` is what ``marks`` say of the counters whose ``values`` are given."""
    if not past:  # nothing has happened for so long that it is no recent past any more
        return View(values, values, (), 0.0)
    return View(values, past[0], (*past[1:], values), now - marks[0].time)
