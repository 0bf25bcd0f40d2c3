"""Plain counters, changed once per batch or request: what every metric is computed from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, TypeAlias

Values: TypeAlias = dict[str, float]
"""What counters say at one moment, by the names of their fields."""


class Builder(Protocol):
    """What a batch's builder tells of its records."""

    @property
    def uncompressed_bytes(self) -> int: ...

    @property
    def max_record_size(self) -> int: ...


class Batch(Protocol):
    """What is counted of a batch."""

    @property
    def tp(self) -> tuple[str, int]: ...

    @property
    def builder(self) -> Builder: ...

    @property
    def record_count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def created_at(self) -> float: ...

    @property
    def last_attempt_at(self) -> float: ...


@dataclass(slots=True)
class Counters:
    """Fields that only grow, and peaks, which begin again with every window."""

    PEAKS: ClassVar[tuple[str, ...]] = ()

    def values(self) -> Values:
        """All fields as they are now."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def end_window(self) -> Values:
        """The values at the end of a window; the next one has peaks of its own."""
        ended = self.values()
        for name in self.PEAKS:
            setattr(self, name, 0)
        return ended


@dataclass(slots=True)
class BatchCounters(Counters):
    """What became of the batches of one topic."""

    records_sent: int = 0
    """Records acknowledged (with acks=0: written to the socket)."""
    records_failed: int = 0
    records_retried: int = 0
    batches_sent: int = 0
    bytes_sent: int = 0
    """Bytes of acknowledged batches, as they went over the wire."""
    uncompressed_bytes: int = 0
    """Bytes of the records in them, before compression."""


@dataclass(slots=True)
class NodeCounters(Counters):
    """The traffic with one broker."""

    PEAKS = ("latency_max",)

    requests: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    answers: int = 0
    """Produce requests that ended with an answer."""
    latency_seconds: float = 0.0
    latency_max: float = 0.0

    def answered(self, seconds: float) -> None:
        """A produce request was answered."""
        self.answers += 1
        self.latency_seconds += seconds
        self.latency_max = max(self.latency_max, seconds)


@dataclass(slots=True)
class ProducerCounters(Counters):
    """What a whole producer did, but what is the sum over its topics or its brokers."""

    PEAKS = ("queued_max", "batch_size_max", "record_size_max", "latency_max", "throttle_ms_max")

    records_sent: int = 0
    records_failed: int = 0
    records_retried: int = 0
    queued_seconds: float = 0.0
    queued_max: float = 0.0
    batch_size_max: int = 0
    record_size_max: int = 0
    batches_split: int = 0
    answers: int = 0
    """Produce requests that ended with an answer (with acks=0: were written to the socket)."""
    latency_seconds: float = 0.0
    latency_max: float = 0.0
    throttle_ms: int = 0
    throttle_ms_max: int = 0
    connections_made: int = 0
    connections_closed: int = 0
    connections_lost: int = 0
    """Connections, and attempts to make one, that failed."""
    sends_without_room: int = 0
    flush_seconds: float = 0.0
