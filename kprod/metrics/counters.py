"""Plain counters, changed once per batch or request: what every metric is computed from."""

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
