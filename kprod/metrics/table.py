"""The table of metrics: names, units, meanings, and how each is computed from counters.

Names and groups are those of Kafka's Java client (``SenderMetricsRegistry``, ``Selector``,
``BufferPool``, ``KafkaProducerMetrics``). Kafka keeps ``metrics.num.samples`` samples of
``metrics.sample.window.ms`` for every statistic. Here, counters only grow, and all of them are
recorded once per window. A metric is computed from the difference of two recorded values.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from kprod_ext.batch import HEADER_BYTES

Values: TypeAlias = dict[str, float]
"""The values of counters at one moment, by name."""

SHORTEST = 1.0
"""Minimum seconds over which a rate is computed, so that the first records do not give a huge
rate."""


class View(NamedTuple):
    """Counters ``now`` and ``seconds`` ago (``before``), and the windows in between, for peaks."""

    now: Values
    before: Values
    windows: tuple[Values, ...]
    seconds: float

    def grown(self, name: str) -> float:
        """The growth of a counter."""
        return self.now[name] - self.before[name]

    def rate(self, name: str) -> float:
        """The growth of a counter per second."""
        return self.grown(name) / max(self.seconds, SHORTEST)

    def mean(self, total: str, count: str) -> float:
        """The growth of ``total`` divided by that of ``count``; 0 if ``count`` has not grown."""
        steps = self.grown(count)
        return self.grown(total) / steps if steps else 0.0

    def peak(self, name: str) -> float:
        """The largest value in the sampled windows; 0 without any window."""
        return max(map(itemgetter(name), self.windows), default=0)


Reading: TypeAlias = Callable[[View], float]


class Metric(NamedTuple):
    """One row: name, unit, description, and how to compute the value."""

    name: str
    unit: str
    doc: str
    read: Reading


class Gauge(NamedTuple):
    """A row for a value that is read on request instead of counted."""

    name: str
    unit: str
    doc: str


def _pair(name: str, unit: str, what: str, counter: str) -> tuple[Metric, Metric]:
    """Kafka's two metrics of a counter: the rate and the total."""
    return (
        Metric(f"{name}-rate", f"{unit}/s", f"{what}, per second", lambda v: v.rate(counter)),
        Metric(f"{name}-total", unit, what, lambda v: v.now[counter]),
    )


def _mean(name: str, unit: str, what: str, counters: tuple[str, str], scale: float = 1) -> Metric:
    total, count = counters
    doc = f"{what}, on average"
    return Metric(f"{name}-avg", unit, doc, lambda v: scale * v.mean(total, count))


def _peak(name: str, unit: str, what: str, counter: str, scale: float = 1) -> Metric:
    return Metric(f"{name}-max", unit, f"{what}, at most", lambda v: scale * v.peak(counter))


def _compression(view: View) -> float:
    before = view.grown("uncompressed_bytes")
    after = view.grown("bytes_sent") - HEADER_BYTES * view.grown("batches_sent")
    return after / before if before else 0.0


_COMPRESSED = "Compressed size divided by uncompressed size; 1 without compression"
_QUEUED = "Time from the first record of a batch to the attempt that was acknowledged"
_LATENCY = "Time from a Produce request to its answer (with `acks=0`: until it was written)"
_BATCH = "Size of an acknowledged batch on the wire, header included"
_RECORD = "Size of a record before compression"
_THROTTLE = "Throttle time that brokers asked for, over all Produce requests"
_REQUEST = "Bytes written for each request"
_LARGEST = "Bytes of a request"
_FAILED = "Records that failed (those of a batch expire together)"


def _batches() -> tuple[Metric, ...]:
    return (
        *_pair("record-send", "records", "Records acknowledged", "records_sent"),
        *_pair("record-retry", "records", "Records sent again", "records_retried"),
        *_pair("record-error", "records", _FAILED, "records_failed"),
        *_pair("byte", "bytes", "Bytes of acknowledged batches on the wire", "bytes_sent"),
    )


def _traffic() -> tuple[Metric, ...]:
    return (
        *_pair("request", "requests", "Requests of any kind", "requests"),
        *_pair("response", "responses", "Answers of any kind", "responses"),
        _mean("request-size", "bytes", _REQUEST, ("bytes_out", "requests")),
        _peak("request-size", "bytes", _LARGEST, "request_size_max"),
        *_pair("outgoing-byte", "bytes", "Bytes written to sockets", "bytes_out"),
        *_pair("incoming-byte", "bytes", "Bytes read from sockets", "bytes_in"),
        _mean("request-latency", "ms", _LATENCY, ("latency_seconds", "answers"), 1000),
        _peak("request-latency", "ms", _LATENCY, "latency_max", 1000),
    )


PRODUCER_METRICS: tuple[Metric, ...] = (
    *_batches(),
    *_pair("batch", "batches", "Batches acknowledged", "batches_sent"),
    *_pair("batch-split", "batches", "Batches split because they were too large", "batches_split"),
    _mean("batch-size", "bytes", _BATCH, ("bytes_sent", "batches_sent")),
    _peak("batch-size", "bytes", _BATCH, "batch_size_max"),
    Metric("compression-rate-avg", "ratio", _COMPRESSED, _compression),
    _mean("record-size", "bytes", _RECORD, ("uncompressed_bytes", "records_sent")),
    _peak("record-size", "bytes", _RECORD, "record_size_max"),
    _mean(
        "records-per-request",
        "records",
        "Acknowledged records per Produce request",
        ("records_sent", "answers"),
    ),
    _mean("record-queue-time", "ms", _QUEUED, ("queued_seconds", "batches_sent"), 1000),
    _peak("record-queue-time", "ms", _QUEUED, "queued_max", 1000),
    *_traffic(),
    _mean("produce-throttle-time", "ms", _THROTTLE, ("throttle_ms", "answers")),
    _peak("produce-throttle-time", "ms", _THROTTLE, "throttle_ms_max"),
    *_pair("connection-creation", "connections", "Connections made", "connections_made"),
    *_pair("connection-close", "connections", "Connections ended", "connections_closed"),
    *_pair(
        "buffer-exhausted",
        "records",
        "Records for which there was no memory within `max_block_ms`",
        "sends_without_room",
    ),
    *_pair("dead-letter", "records", "Records stored in `dead_letter_topic`", "letters_stored"),
    *_pair(
        "dead-letter-error",
        "records",
        "Failed records that could not be stored in `dead_letter_topic`",
        "letters_lost",
    ),
    Metric(
        "flush-time-ns-total",
        "ns",
        "Time threads spent in `flush`",
        lambda v: 1e9 * v.now["flush_seconds"],
    ),
)
"""The group ``producer-metrics`` without the gauges."""

TRANSACTION_TIMES: tuple[Gauge, ...] = tuple(
    Gauge(f"txn-{name}-time-ns-total", "ns", f"Time threads spent in `{call}`")
    for name, call in (
        ("init", "init_transactions"),
        ("begin", "begin_transaction"),
        ("send-offsets", "send_offsets_to_transaction"),
        ("commit", "commit_transaction"),
        ("abort", "abort_transaction"),
    )
)
"""Times of a producer with transactions; 0 for one without (KIP-761)."""

PRODUCER_GAUGES: tuple[Gauge, ...] = (
    Gauge("buffer-total-bytes", "bytes", "`buffer_memory`"),
    Gauge("buffer-available-bytes", "bytes", "Free part of the buffer memory"),
    Gauge("waiting-threads", "threads", "Threads in `send` that wait for memory"),
    Gauge("bufferpool-wait-time-ns-total", "ns", "Time threads spent in `send` waiting for memory"),
    Gauge("requests-in-flight", "requests", "Requests without an answer"),
    Gauge("connection-count", "connections", "Open connections"),
    Gauge("metadata-age", "s", "Time since the last refresh of the metadata"),
    *TRANSACTION_TIMES,
)

TOPIC_METRICS: tuple[Metric, ...] = (
    *_batches(),
    Metric("compression-rate", "ratio", _COMPRESSED, _compression),
)
"""The groups ``producer-topic-metrics.<topic>``."""

NODE_METRICS: tuple[Metric, ...] = _traffic()
"""The groups ``producer-node-metrics.node-<id>``."""
