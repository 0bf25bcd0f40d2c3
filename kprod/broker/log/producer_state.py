"""What a partition knows of each producer, to detect duplicates, gaps and open transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.log.indexes import AbortedTransaction
from kprod.broker.records.batch_writer import TransactionMarker
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader


@dataclass(frozen=True, slots=True, eq=False)
class VerificationGuard:
    """A token for one question to the coordinator: whether a transaction is open.

    The end of the transaction makes the guard invalid, and the log does not append a batch with an
    invalid guard (KIP-890). Otherwise a delayed request could begin a transaction that never ends:
    the coordinator confirms that the transaction is open, the transaction is aborted, and then the
    batch is appended.
    """

    asked_ms: int


NO_PRODUCER: Final = -1
NO_TRANSACTION: Final = -1
NO_SEQUENCE: Final = -1
_REMEMBERED_BATCHES: Final = 5
HIGHEST_EPOCH: Final = 2**15 - 1
"""The highest epoch that the protocol and the files can represent.

A producer only gets it if it was fenced by a time-out and repeats its abort (KIP-890).
"""
_SEQUENCES: Final = 2**31


class AppendedBatch(NamedTuple):
    """One remembered batch. ``offset_delta`` is the last offset minus the first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The first sequence number of the batch. The number after 2^31-1 is 0."""
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def first_offset(self) -> int:
        """The base offset of the batch, which the producer received."""
        return self.last_offset - self.offset_delta


def no_batches() -> deque[AppendedBatch]:
    """Return an empty queue for a producer's last five batches, all that it may resend."""
    return deque(maxlen=_REMEMBERED_BATCHES)


@dataclass(slots=True)
class ProducerEntry:
    """The current epoch of a producer id, and its last batches in that epoch, oldest first.

    ``transaction_start`` is the first offset of its open transaction. ``coordinator_epoch`` is the
    epoch in its last marker. ``last_timestamp`` is the time of its last batch or marker.
    """

    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=no_batches)
    coordinator_epoch: int = -1
    transaction_start: int = NO_TRANSACTION
    last_timestamp: int = -1


class ProducerState:
    """The producers of one partition, by producer id. The partition's lock guards it.

    The rules are those of Kafka's ProducerStateManager and ProducerAppendInfo (KIP-98, KIP-360,
    KIP-890). A producer has at most five requests in flight. So its last five batches in the
    current epoch are remembered, to recognise duplicates. A transaction is open from its first
    batch to its marker.
    """

    def __init__(self, producers: Iterable[tuple[int, ProducerEntry]] = ()) -> None:
        """``producers`` are those in a snapshot, with their ids."""
        self._producers = dict(producers)
        # First offset by producer id, in the order of the offsets.
        self._open: dict[int, int] = {}
        self._guards: dict[int, VerificationGuard] = {}
        self._sort_open()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._producers.items())

    def first_open(self, end: int) -> int:
        """Return the first offset of all open transactions; ``end`` if no transaction is open."""
        return next(iter(self._open.values()), end) if self._open else end

    def _check_transaction(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        producer_id = header.producer_id
        if self._in_transaction(producer_id, header.producer_epoch):
            return
        if guard is None or self._guards.get(producer_id) is not guard:
            raise BrokerError(
                ErrorCode.invalid_txn_state, f"producer {producer_id} has no open transaction here"
            )

    def _in_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._producers.get(producer_id)
        return entry is not None and producer_id in self._open and entry.epoch == epoch

    def duplicate_of(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the remembered batch that a batch repeats, or None.

        The two batches have the same epoch and the same sequence numbers.
        """
        entry = self._producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or header.base_sequence < 0:
            return None
        last_sequence = _last_sequence(header)
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last_sequence):
                return batch
        return None

    def verification(self, producer_id: int, epoch: int, now_ms: int) -> VerificationGuard | None:
        """Return the guard that ``check`` requires for a transaction's first batch here.

        Get the guard before you ask the coordinator whether the transaction is open. If the
        transaction already has a batch in this partition, the result is None, and the coordinator
        need not be asked.
        """
        if self._in_transaction(producer_id, epoch):
            return None
        return self._guards.setdefault(producer_id, VerificationGuard(now_ms))

    def check(
        self,
        header: BatchHeader,
        guard: VerificationGuard | None = None,
        *,
        from_zero: bool = False,
    ) -> None:
        """Raise ``BrokerError`` unless this is the producer's next batch.

        The codes are 45 (wrong sequence number), 47 (old producer epoch) and 48 (no open
        transaction, or a batch outside of the open one).

        A producer without state may start with any sequence number, because its state may have
        expired. With ``from_zero`` it must start with 0, because its transaction has just begun in
        this partition (KIP-890). Batches that a coordinator writes have no sequence numbers.
        """
        if header.is_transactional:
            self._check_transaction(header, guard)
        entry = self._producers.get(header.producer_id)
        if entry is None:
            if from_zero and header.base_sequence > 0:
                raise _out_of_order(header, 0)
            return
        _check_epoch(header.producer_id, header.producer_epoch, entry.epoch)
        fresh = header.producer_epoch > entry.epoch or not entry.batches
        expected = 0 if fresh else (entry.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence not in (expected, NO_SEQUENCE):
            raise _out_of_order(header, expected)
        if entry.transaction_start != NO_TRANSACTION and not header.is_transactional:
            raise BrokerError(
                ErrorCode.invalid_txn_state,
                f"producer {header.producer_id} has an open transaction, this batch is not part of",
            )

    def update(self, header: BatchHeader) -> None:
        """Remember a batch that was appended. ``header`` has its final offsets. Not for markers."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            entry = self._producers[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            _begin_epoch(entry, header.producer_epoch)
        entry.batches.append(
            AppendedBatch(
                _last_sequence(header),
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.transaction_start == NO_TRANSACTION:
            self._open[header.producer_id] = header.base_offset
            entry.transaction_start = header.base_offset
            self._guards.pop(header.producer_id, None)

    def check_marker(self, marker: TransactionMarker, transaction_version: int) -> None:
        """Raise ``BrokerError`` 47 for an old producer epoch, 52 for an old coordinator epoch.

        With version 2 of transactions (KIP-890), the marker of a transaction has a new epoch,
        unless the highest epoch is reached. So a marker with the current epoch is a repeated one.
        It must not end a transaction that has begun since.
        """
        entry = self._producers.get(marker.producer_id)
        if entry is None:
            return
        _check_epoch(marker.producer_id, marker.producer_epoch, entry.epoch)
        bumped = transaction_version >= 2 and marker.producer_epoch < HIGHEST_EPOCH
        late = bumped and marker.producer_epoch == entry.epoch
        if late and entry.transaction_start != NO_TRANSACTION:
            raise BrokerError(
                ErrorCode.invalid_producer_epoch,
                f"a marker of epoch {marker.producer_epoch} of producer {marker.producer_id} came "
                "after the next transaction had begun",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise BrokerError(
                ErrorCode.transaction_coordinator_fenced,
                f"coordinator epoch {marker.coordinator_epoch} is over, the present one is "
                f"{entry.coordinator_epoch}",
            )

    def aborted_by(self, marker: TransactionMarker, offset: int) -> AbortedTransaction | None:
        """Return the transaction that a marker at ``offset`` aborts; None if it aborts none."""
        start = self._open.get(marker.producer_id)
        if marker.committed or start is None:
            return None
        others = (at for producer_id, at in self._open.items() if producer_id != marker.producer_id)
        return AbortedTransaction(marker.producer_id, start, offset, next(others, offset + 1))

    def end_transaction(self, marker: TransactionMarker, timestamp: int) -> None:
        """Apply an appended marker: end the open transaction, and take over the marker's epoch."""
        entry = self._producers.get(marker.producer_id)
        if entry is None:
            entry = self._producers[marker.producer_id] = ProducerEntry(marker.producer_epoch)
        elif entry.epoch != marker.producer_epoch:
            _begin_epoch(entry, marker.producer_epoch)
        self._open.pop(marker.producer_id, None)
        self._guards.pop(marker.producer_id, None)
        entry.transaction_start = NO_TRANSACTION
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp

    def expire(self, oldest_ms: int) -> None:
        """Forget producers that have written nothing since ``oldest_ms``.

        Producers with an open transaction are kept. Kafka: ``producer.id.expiration.ms``.
        """
        self._producers = {
            producer_id: entry
            for producer_id, entry in self._producers.items()
            if producer_id in self._open or entry.last_timestamp >= oldest_ms
        }
        self._guards = {p: g for p, g in self._guards.items() if g.asked_ms >= oldest_ms}

    def resume(self, snapshot: ProducerState) -> None:
        """Add the state of a snapshot, after batches before the snapshot were read.

        The snapshot has only the last batch of each producer. If more were read, they are kept.
        """
        for producer_id, entry in snapshot:
            seen = self._producers.get(producer_id)
            if seen is not None and seen.epoch == entry.epoch and entry.batches and seen.batches:
                entry.batches = seen.batches
            self._producers[producer_id] = entry
        for producer_id, entry in self._producers.items():
            if producer_id not in snapshot._producers:
                entry.transaction_start = NO_TRANSACTION
        self._sort_open()

    def _sort_open(self) -> None:
        found = [(e.transaction_start, p) for p, e in self if e.transaction_start != NO_TRANSACTION]
        self._open = {producer_id: start for start, producer_id in sorted(found)}


def _begin_epoch(entry: ProducerEntry, epoch: int) -> None:
    entry.batches = no_batches()
    entry.epoch = epoch


def _check_epoch(producer_id: int, epoch: int, present: int) -> None:
    if epoch < present:
        raise BrokerError(
            ErrorCode.invalid_producer_epoch,
            f"epoch {epoch} of producer {producer_id} is over, the present one is {present}",
        )


def _out_of_order(header: BatchHeader, expected: int) -> BrokerError:
    return BrokerError(
        ErrorCode.out_of_order_sequence_number,
        f"sequence {header.base_sequence} of producer {header.producer_id}, expected {expected}",
    )


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
