"""Checks the client's sequence numbers and the pauses before retries.

Invariants I12, I16, of I13 that a broker can recognise every repetition, and of I14 that a batch
which can never succeed is not retried.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kprod.records.record_batch import BatchHeader
from kprod.types import TopicPartition
from tests.simulation.events import SimClock
from tests.simulation.history import History
from tests.simulation.model.cluster import Cluster
from tests.simulation.setup import Setup

LEAST_JITTER = 0.8
SEQUENCES = 2**31
REMEMBERED = 5  # batches of a producer whose repetition a broker recognises


@dataclass(slots=True)
class Transmission:
    """One batch as it was last sent; ``hasty``: retries without a pause.

    ``lost``: its connection ended without an answer: the retry only waits for the next connection.
    ``stored``: it was acknowledged. ``in_doubt``: the client cannot know whether an attempt was
    stored. ``refused``: for its sequence, with no older batch pending: no retry can succeed.
    ``ended``: by an error that no client retries, although the batch may be stored.
    """

    fields: BatchHeader
    at: float
    hasty: int = 0
    lost: bool = False
    stored: bool = False
    in_doubt: bool = False
    refused: bool = False
    ended: bool = False


@dataclass(slots=True)
class Sequence:
    """The batches of one producer id and epoch to one partition.

    ``window``: those from the first unsettled one on.
    """

    expected: int = 0
    window: deque[Transmission] = field(default_factory=deque)
    batches: dict[int, Transmission] = field(default_factory=dict)
    split: list[BatchHeader] = field(default_factory=list)

    def of_a_part(self, sequence: int) -> bool:
        return any(
            b.base_sequence <= sequence < b.base_sequence + b.record_count for b in self.split
        )

    def cut(self, base_sequence: int) -> None:
        """The batch was split: its parts use its sequence numbers."""
        whole = self.batches.pop(base_sequence, None)
        if whole is not None:
            self.split.append(whole.fields)
            if whole in self.window:
                self.window.remove(whole)

    def opens_window(self, newest: Transmission) -> int:
        """The size of the window: what the broker must remember if it stored all batches."""
        self.window.append(newest)
        self._settle()
        return len(self.window)

    def refused(self, refused: Transmission) -> None:
        """The broker expects another sequence; parts of a split batch may still fill the gap."""
        self._settle()
        oldest = bool(self.window) and self.window[0] is refused
        refused.refused = oldest and not self.split and not refused.in_doubt

    def _settle(self) -> None:
        while self.window and (self.window[0].stored or self.window[0].ended):
            self.window.popleft()


class SequenceWatch:
    """Partitions are identified by name: sequences continue in a recreated topic."""

    def __init__(self, setup: Setup, cluster: Cluster, clock: SimClock) -> None:
        self._pause = LEAST_JITTER * setup.retry_backoff_ms / 1000 - 1e-6
        self._pause_when_lost = LEAST_JITTER * setup.reconnect_backoff_ms / 1000 - 1e-6
        self._cluster = cluster
        self._clock = clock
        self._sequences: dict[tuple[int, int, TopicPartition], Sequence] = {}
        self._epochs: dict[tuple[int, TopicPartition], int] = {}

    def sent(self, tp: TopicPartition, fields: BatchHeader, history: History) -> None:
        newest = self._epochs.get((fields.producer_id, tp), fields.producer_epoch)
        if fields.producer_epoch < newest:
            history.violated("I12", f"epoch {fields.producer_epoch} of {tp} after {newest}")
        self._epochs[fields.producer_id, tp] = fields.producer_epoch
        known = self._sequences.setdefault(
            (fields.producer_id, fields.producer_epoch, tp), Sequence()
        )
        before = known.batches.get(fields.base_sequence)
        if (
            before is not None
            and fields.record_count < before.fields.record_count
            and not before.in_doubt
        ):
            known.cut(fields.base_sequence)
        elif before is not None:
            self._sent_again(tp, before, fields, history)
            return
        transmission = Transmission(fields, self._clock.now)
        known.batches[fields.base_sequence] = transmission
        if known.of_a_part(fields.base_sequence):
            return
        gap_allowed = tp in history.failed_partitions
        if fields.base_sequence != known.expected and not gap_allowed:
            history.violated("I12", f"{tp}: expected sequence {known.expected}: {fields}")
        # A batch that was out of sequence and is in doubt is not sent again.
        many = known.opens_window(transmission) > REMEMBERED and tp not in history.doubted
        if many and not history.has_failed(tp):
            history.violated("I13", f"{len(known.window)} batches of {tp}, the first unsettled")
        known.expected = (fields.base_sequence + fields.record_count) % SEQUENCES

    def _sent_again(
        self, tp: TopicPartition, before: Transmission, fields: BatchHeader, history: History
    ) -> None:
        now = self._clock.now
        if (before.fields.record_count, before.fields.crc) != (fields.record_count, fields.crc):
            history.violated("I12", f"two batches with the same sequence: {fields}")
        if before.ended:
            history.violated("I14", f"ended by an answer, and sent again: {fields} of {tp}")
        if before.refused:
            history.violated("I14", f"refused for its sequence, and sent again: {fields} of {tp}")
        pause = min(self._pause, self._pause_when_lost) if before.lost else self._pause
        if now - before.at < pause:
            before.hasty += 1  # allowed once for each new leader
            if before.hasty > self._cluster.changes:
                history.violated("I16", f"sent again after {now - before.at:.3f} s: {fields}")
        before.at, before.lost = now, False

    def known(self, tp: TopicPartition, fields: BatchHeader) -> Transmission:
        """The state of a batch; a throw-away object if it is unknown."""
        known = self._sequences.get((fields.producer_id, fields.producer_epoch, tp), Sequence())
        return known.batches.get(fields.base_sequence) or Transmission(fields, 0.0)

    def refused(self, tp: TopicPartition, fields: BatchHeader) -> None:
        """A broker has rejected the batch's sequence."""
        known = self._sequences.get((fields.producer_id, fields.producer_epoch, tp))
        batch = None if known is None else known.batches.get(fields.base_sequence)
        if known is not None and batch is not None:
            known.refused(batch)

    def too_large(self, tp: TopicPartition, fields: BatchHeader) -> None:
        """A broker has rejected the batch's size: its halves use its numbers."""
        known = self._sequences.get((fields.producer_id, fields.producer_epoch, tp))
        if known is not None:
            known.cut(fields.base_sequence)
