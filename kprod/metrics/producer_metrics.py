"""The counters of one producer, and how they become metrics under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from kprod.metrics.counters import BatchCounters, NodeCounters, SenderCounters, Values
from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    TRANSACTION_TIMES,
    Metric,
)
from kprod.metrics.view import View
from kprod_ext import Mutex

Groups: TypeAlias = dict[str, dict[str, float]]
"""Metrics by group and name."""

FIRST = float("-inf")
NANOSECONDS = 1e9


class Mark(NamedTuple):
    """What all counters said when a window ended; the peaks are that window's."""

    time: float
    producer: Values
    topics: dict[str, Values]
    nodes: dict[int, Values]


class ProducerMetrics(SenderCounters):
    """Everything counted since the producer was made.

    Changed by the sender's thread only, once per batch or request, never per record; what other
    threads may call says so. Reading from any thread gives a recent value. Rates, averages and
    maxima are those of the last ``samples`` windows of ``window`` seconds: whoever drives the
    sender calls ``mark`` when ``mark_due`` has come. Times are on the sender's clock.
    """

    def __init__(self, samples: int = 2, window: float = 30.0) -> None:
        super().__init__()
        self._forgotten = BatchCounters()  # what all topics that were forgotten add up to
        self.mark_due = FIRST
        self._samples = samples
        self._window = window
        self._marks: tuple[Mark, ...] = ()
        self._spent = dict.fromkeys((gauge.name for gauge in TRANSACTION_TIMES), 0.0)
        self._lock = Mutex()  # guards what callers count, marks, and that topics leave

    # The sender's thread --------------------------------------------------------------------------

    def forget(self, topics: Iterable[str]) -> None:
        """Keep nothing of these topics but what they add to the sums."""
        with self._lock:
            for name in topics:
                gone = self.topics.get(name)
                if gone is not None:
                    self._forgotten.add(gone)
                    del self.topics[name]
                    for mark in self._marks:
                        mark.topics.pop(name, None)
            self.topics = dict(self.topics)  # one that was large once stays it

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
            topics = [self._forgotten, *list(self.topics.values())]
            values[name] = sum(getattr(topic, name) for topic in topics)
        nodes = list(self.nodes.values())
        for name in ("requests", "responses", "bytes_out", "bytes_in"):
            values[name] = sum(getattr(node, name) for node in nodes)
        values["request_size_max"] = max((node.request_size_max for node in nodes), default=0)
        return values

    # Any thread -----------------------------------------------------------------------------------

    def found_no_room(self) -> None:
        """There was no memory for a record, sent alone or with others, in time."""
        with self._lock:
            self.sends_without_room += 1

    def flushed(self, seconds: float) -> None:
        """A ``flush`` took that long."""
        with self._lock:
            self.flush_seconds += seconds

    def spent(self, name: str, seconds: float) -> None:
        """A call of a transaction took that long; ``name`` is one of ``TRANSACTION_TIMES``."""
        with self._lock:
            self._spent[name] += seconds * NANOSECONDS

    @property
    def connections(self) -> int:
        """Connections there are."""
        return self.connections_made - self.connections_closed

    def groups(self, now: float, gauges: Mapping[str, float]) -> Groups:
        """The metrics by group and name; ``gauges`` are those that are not counted here."""
        with self._lock:  # or a topic could be counted twice while it is forgotten
            written, topics = self._marks, list(self.topics.items())
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
        for node_id, node in list(self.nodes.items()):
            past = [mark.nodes.get(node_id, _NO_TRAFFIC) for mark in marks]
            view = _view(now, node.values(), past, marks)
            groups[f"producer-node-metrics.node-{node_id}"] = _read(NODE_METRICS, view)
        return groups


_NO_BATCHES = BatchCounters().values()
_NO_TRAFFIC = NodeCounters().values()


def _read(metrics: tuple[Metric, ...], view: View) -> dict[str, float]:
    return {metric.name: metric.read(view) for metric in metrics}


def _view(now: float, values: Values, past: list[Values], marks: list[Mark]) -> View:
    """``past`` is what ``marks`` say of the counters whose ``values`` are given."""
    if not past:  # nothing has happened for so long that it is no recent past any more
        return View(values, values, (), 0.0)
    return View(values, past[0], (*past[1:], values), now - marks[0].time)
