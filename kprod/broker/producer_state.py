"""What a partition remembers of each idempotent producer, to know duplicates and gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.batch_header import BatchHeader
from kprod.errors import BrokerError

NO_PRODUCER: Final = -1
_REMEMBERED_BATCHES: Final = 5
_SEQUENCES: Final = 2**31


class AppendedBatch(NamedTuple):
    """One remembered batch. ``offset_delta`` is last minus first offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence numbers wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def first_offset(self) -> int:
        """The base offset the producer was told."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """The present epoch of one producer id and its last batches in that epoch, oldest first."""

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerState:
    """The producers of one partition by producer id. Not thread-safe: the partition's lock.

    Rules as in Kafka's ProducerStateManager and ProducerAppendInfo (KIP-98, KIP-360): the last
    five batches of a producer's epoch are known, so that a resend of one of the at most five
    requests in flight is recognised.
    """

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._producers.items())

    def duplicate_of(self, header: BatchHeader) -> AppendedBatch | None:
        """The remembered batch that a resent one equals: same epoch, same sequences."""
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        last_sequence = _last_sequence(header)
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last_sequence):
                return batch
        return None

    def check(self, header: BatchHeader) -> None:
        """Raise ``BrokerError`` 47 or 45 unless the batch comes next from its producer.

        A producer without state may start anywhere: its state may have expired.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise BrokerError(
                ErrorCode.invalid_producer_epoch,
                f"epoch {header.producer_epoch} of producer {header.producer_id} is over, "
                f"the present one is {entry.epoch}",
            )
        fresh = header.producer_epoch > entry.epoch or not entry.batches
        expected = 0 if fresh else (entry.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise BrokerError(
                ErrorCode.out_of_order_sequence_number,
                f"sequence {header.base_sequence} of producer {header.producer_id}, "
                f"expected {expected}",
            )

    def update(self, header: BatchHeader) -> None:
        """Remember an appended batch, whose offsets are final."""
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch)
        entry.batches.append(
            AppendedBatch(
                _last_sequence(header),
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )

    def restore(self, producer_id: int, epoch: int, batch: AppendedBatch) -> None:
        """Put back the last batch of a producer, as a snapshot knows it."""
        self._producers[producer_id] = ProducerEntry(epoch)
        self._producers[producer_id].batches.append(batch)

    def adopt(self, other: ProducerState) -> None:
        """Take over the producers that are unknown here."""
        self._producers = {**other._producers, **self._producers}


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
