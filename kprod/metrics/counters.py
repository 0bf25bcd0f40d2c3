"""Plain counters, changed once per batch or request: the source of every metric."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Values: TypeAlias = dict[str, float]
"""What counters say at one moment, by their names."""

_NONE: tuple[str, ...] = ()


class Batch(Protocol):
    """What is counted of a batch that is not stored."""

    @property
    def tp(self) -> tuple[str, int]: ...

    @property
    def record_count(self) -> int: ...


class Counters:
    """Numbers that only grow, and peaks, which begin again with every window."""

    NAMES = _NONE
    PEAKS = _NONE

    def values(self) -> Values:
        """All of them as they are now."""
        return {name: getattr(self, name) for name in self.NAMES}

    def end_window(self) -> Values:
        """The values at the end of a window; the next one has peaks of its own."""
        ended = self.values()
        for name in self.PEAKS:
            setattr(self, name, 0)
        return ended


class BatchCounters(Counters):
    """What became of the batches of one topic.

    ``records_sent`` were acknowledged (with acks=0: written to the socket); ``bytes_sent`` are
    those of their batches as they went over the wire, ``uncompressed_bytes`` those of the records
    in them before compression.
    """

    NAMES = (
        *("records_sent", "records_failed", "records_retried"),
        *("batches_sent", "bytes_sent", "uncompressed_bytes"),
    )

    def __init__(self) -> None:
        self.records_sent = 0
        self.records_failed = 0
        self.records_retried = 0
        self.batches_sent = 0
        self.bytes_sent = 0
        self.uncompressed_bytes = 0

    def add(self, other: BatchCounters) -> None:
        """Count what ``other`` has counted, too."""
        for name in self.NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class NodeCounters(Counters):
    """The traffic with one broker. ``answers`` are the Produce requests that ended with one."""

    PEAKS = ("latency_max", "request_size_max")
    NAMES = (
        *("requests", "responses", "bytes_out", "bytes_in"),
        *("answers", "latency_seconds"),
        *PEAKS,
    )

    def __init__(self) -> None:
        self.requests = 0
        self.request_size_max = 0
        self.responses = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.answers = 0
        self.latency_seconds = 0.0
        self.latency_max = 0.0

    def sent(self, nbytes: int) -> None:
        """A request of so many bytes was made."""
        self.requests += 1
        self.request_size_max = max(self.request_size_max, nbytes)

    def answered(self, seconds: float) -> None:
        """A produce request was answered."""
        self.answers += 1
        self.latency_seconds += seconds
        self.latency_max = max(self.latency_max, seconds)


class ProducerCounters(Counters):
    """What a whole producer did, but what is the sum over its topics or its brokers.

    ``answers`` are the Produce requests that ended with one (with acks=0: were written to the
    socket); ``connections_lost`` the connections, and attempts to make one, that failed.
    """

    PEAKS = ("queued_max", "batch_size_max", "record_size_max", "latency_max", "throttle_ms_max")
    NAMES = (
        *("records_sent", "records_failed", "records_retried", "batches_split"),
        *("answers", "queued_seconds", "latency_seconds", "throttle_ms"),
        *("connections_made", "connections_closed", "connections_lost"),
        *("sends_without_room", "flush_seconds"),
        *PEAKS,
    )

    def __init__(self) -> None:
        self.records_sent = 0
        self.records_failed = 0
        self.records_retried = 0
        self.queued_seconds = 0.0
        self.queued_max = 0.0
        self.batch_size_max = 0
        self.record_size_max = 0
        self.batches_split = 0
        self.answers = 0
        self.latency_seconds = 0.0
        self.latency_max = 0.0
        self.throttle_ms = 0
        self.throttle_ms_max = 0
        self.connections_made = 0
        self.connections_closed = 0
        self.connections_lost = 0
        self.sends_without_room = 0
        self.flush_seconds = 0.0


class SenderCounters(ProducerCounters):
    """The counters of a producer, of its topics and of its brokers.

    Thread: the sender's only, but for reading, which gives a recent value from any thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, BatchCounters] = {}
        self.nodes: dict[int, NodeCounters] = {}

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
