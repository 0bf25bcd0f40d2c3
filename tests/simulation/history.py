"""The records the application sent, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field

from kprod.errors import KprodError
from kprod.types import Header, RecordMetadata, TopicPartition
from kprod_ext.futures import FutureRecordMetadata


@dataclass(slots=True, eq=False)
class Sent:
    """One record that ``send`` accepted. Times are those of the simulation."""

    uid: int
    tp: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int
    future: FutureRecordMetadata
    at: float
    probe: bool  # sent after all faults, when nothing was in flight
    done_at: float = -1.0
    stored: RecordMetadata | None = None
    error: KprodError | None = None


@dataclass(slots=True)
class History:
    """``accepted`` in the order of ``send``; ``ended`` in that of the callbacks."""

    accepted: list[Sent] = field(default_factory=list)
    ended: list[Sent] = field(default_factory=list)
    refused: list[tuple[int, KprodError]] = field(default_factory=list)
    failed_partitions: set[TopicPartition] = field(default_factory=set)
    doubted: set[TopicPartition] = field(default_factory=set)  # a broker reported a wrong sequence
    promised: set[tuple[TopicPartition, int, int, int]] = field(default_factory=set)
    """Partition, producer id, epoch and first sequence of acknowledged batches."""
    violations: list[str] = field(default_factory=list)
    closed: bool = False

    def violated(self, invariant: str, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(f"{invariant}: {what}")

    def has_failed(self, tp: TopicPartition) -> bool:
        """Whether a record of the partition has failed, even before its callback.

        The sender fails it and sends the next ones in the same iteration.
        """
        return tp in self.failed_partitions or any(
            sent.tp == tp and sent.future.failed() for sent in self.accepted
        )

    def ends(self, sent: Sent, now: float) -> None:
        if sent.done_at >= 0:
            self.violated("I6", f"record {sent.uid} of {sent.tp} ended twice")
        if self.closed:
            self.violated("I6", f"record {sent.uid} of {sent.tp} ended after close")
        if sent.error is not None:
            self.failed_partitions.add(sent.tp)
        sent.done_at = now
        self.ended.append(sent)
