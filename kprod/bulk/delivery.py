"""One handle for the results of all records of a bulk call, together or one by one."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from kprod.buffer.delivery import NO_OFFSET, BatchDelivery, check_timeout
from kprod.clock import SystemClock
from kprod.errors import DeliveryError, KprodError, still_being_sent
from kprod.types import Persisted, RecordMetadata, TopicPartition
from kprod_ext import SentRecords

UNKNOWN = -1

Run: TypeAlias = tuple[BatchDelivery, int, int]
"""Records that follow each other in a batch: its delivery, the first one's index, how many."""

Piece: TypeAlias = tuple[BatchDelivery, int, Run]
"""Part of a run: the delivery with its outcomes, the index of its first record there, and the
number of the part."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The first and the last offset that the records of a bulk call have in one partition.

    Other records may lie between these offsets. Both are -1 if the broker returned no offsets
    (``acks=0``). ``records`` is the number of records of the call in the partition.
    """

    first: int
    last: int
    records: int


@dataclass(frozen=True, slots=True)
class BulkReport:
    """All ``records`` of a bulk call were acknowledged.

    ``offsets`` maps each partition to the range of the records' offsets.
    """

    records: int
    offsets: Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The number of records of a bulk call by result, at one moment.

    ``failure`` is the error that ``BulkDelivery.get`` raises, or None if no record has failed.
    ``waits_for`` is the partition of the first record that has no result yet.
    """

    acknowledged: int
    failed: int
    pending: int
    failure: DeliveryError | None
    waits_for: TopicPartition | None


class BulkDelivery:
    """The results of the records of one ``send_many`` or ``send_arrow``. Thread-safe.

    ``len`` is the number of queued records. Records are numbered from 0, in the order in which they
    were passed to the call. ``await`` returns the same as ``get``.

    The handle does not keep the records. It keeps the results of batches, and twelve bytes for each
    run of records that are next to each other in a batch. It cannot be pickled.
    """

    def __init__(self, sent: SentRecords) -> None:
        self._sent = sent

    def __len__(self) -> int:
        return self._sent.count

    @property
    def is_done(self) -> bool:
        """True once every record was acknowledged or has failed."""
        return all(delivery.done for delivery, _, _ in self._runs)

    @cached_property
    def _runs(self) -> list[Run]:
        return self._sent.runs()

    def get(self, timeout: float | None = None) -> BulkReport:
        """Wait at most ``timeout`` seconds (None: no limit) until every record has a result.

        Raises DeliveryError if any record failed; its cause is the error of the first failed
        record. Raises KprodTimeoutError if some records have no result yet; kprod is still sending
        them. Raises IllegalStateError inside a delivery callback, and RecordTypeError or
        InvalidRecordError for an invalid timeout.
        """
        if timeout is not None:
            check_timeout(timeout)
        if not self._wait(timeout):
            pending = self.progress().pending
            raise still_being_sent(
                f"{pending} of {len(self)} records have no outcome after {timeout:g} s;"
                " they are still being sent"
            )
        pieces = list(self._pieces())
        failure = self._progress(pieces).failure
        if failure is not None:
            raise failure
        return BulkReport(len(self), _offsets(pieces))

    def progress(self) -> BulkProgress:
        """Return the current number of records by result, without waiting."""
        return self._progress(self._pieces())

    def _progress(self, pieces: Iterable[Piece]) -> BulkProgress:
        failed: list[tuple[BatchDelivery, int]] = []
        pending, waits_for = 0, None
        # One look at each: the sender goes on meanwhile.
        for piece, _, (_, _, count) in pieces:
            # A batch with different outcomes has its parts before it is done.
            if not piece.done or piece.is_split:
                pending += count
                waits_for = waits_for or piece.tp
            elif piece.error:
                failed.append((piece, count))
        records = sum(count for _, count in failed)
        return BulkProgress(
            acknowledged=len(self) - records - pending,
            failed=records,
            pending=pending,
            failure=self._failure(failed, pending) if failed else None,
            waits_for=waits_for,
        )

    def outcome(self, record: int) -> RecordMetadata | KprodError | None:
        """Return the metadata or the error of a record; None while it has no result.

        Negative numbers count from the end. Raises IndexError. A call takes about 2 us. Because the
        handle keeps no records, the sizes in the metadata are -1. The timestamp is also -1, unless
        the broker has set it.
        """
        number = record + len(self) if record < 0 else record
        delivery, index = self._sent.locate(number)
        delivery, index = delivery.locate(index)
        if not delivery.done:
            return None
        if delivery.is_split:  # it was split just now: a batch is split before it is done
            delivery, index = delivery.locate(index)
            if not delivery.done:
                return None
        error: KprodError | None = delivery.error
        return _metadata(delivery, index) if error is None else error

    def __getitem__(self, record: int) -> RecordMetadata | KprodError | None:
        return self.outcome(record)

    def __iter__(self) -> Iterator[RecordMetadata | KprodError | None]:
        return map(self.outcome, range(len(self)))

    def failed_indices(self) -> list[int]:
        """Return the numbers of the records that have failed so far, in ascending order.

        Before you send them again, check ``persisted`` of their errors: some may be stored.
        """
        return self._sent.records_of([run for p, _, run in self._pieces() if p.done and p.error])

    @property
    def exceptions(self) -> list[KprodError]:
        """The errors of the records that have failed so far: one error for each failed batch."""
        return [p.error for p, *_ in self._pieces() if p.done and p.error]

    def __await__(self) -> Generator[Any, None, BulkReport]:
        self._expedite()
        for delivery, _, _ in self._runs:
            if not delivery.done:
                yield from delivery.wait_in_loop()
        return self.get(0)

    def _wait(self, timeout: float | None) -> bool:
        clock = SystemClock()
        deadline = None if timeout is None else clock.monotonic() + timeout
        self._expedite()
        for delivery, _, _ in self._runs:
            if delivery.done:
                continue
            left = None if deadline is None else max(0.0, deadline - clock.monotonic())
            if not delivery.wait(left):
                return False
        return True

    def _expedite(self) -> None:
        """Send the batches immediately, because a caller waits for them."""
        for delivery, _, _ in self._runs:
            delivery.expedite()

    def _pieces(self) -> Iterator[Piece]:
        """The runs, divided where their batches were split."""
        for delivery, first, count in self._runs:
            start = first
            for piece, index, part in delivery.pieces(first, count):
                yield piece, index, (delivery, start, part)
                start += part

    def _failure(self, failed: list[tuple[BatchDelivery, int]], pending: int) -> DeliveryError:
        records = sum(count for _, count in failed)
        acknowledged = len(self) - records - pending
        first = failed[0][0]
        unknown = f" {pending:,} have no outcome yet," if pending else ""
        error = DeliveryError(
            f"{records:,} of {len(self):,} records failed,{unknown} {acknowledged:,} were"
            f" acknowledged; first: {first.tp}: {type(first.error).__name__}: {first.error}",
            acknowledged=acknowledged,
            failed=records,
            pending=pending,
            topic_partition=first.tp,
        )
        error.__cause__ = first.error
        doubts = (piece.error and piece.error.persisted is Persisted.MAYBE for piece, _ in failed)
        if pending or any(doubts):
            error.persisted = Persisted.MAYBE
        return error

    def __reduce__(self) -> Any:
        raise TypeError("a BulkDelivery cannot be pickled: it waits for outcomes in its process")

    def __repr__(self) -> str:
        state = "done" if self.is_done else "pending"
        return f"<BulkDelivery records={len(self)} {state}>"


def _offsets(pieces: list[Piece]) -> dict[TopicPartition, OffsetRange]:
    """The ranges of offsets of acknowledged records, by partition."""
    seen: dict[TopicPartition, tuple[int, int, int]] = {}
    for piece, index, (_, _, count) in pieces:
        first, last, records = seen.get(piece.tp) or (NO_OFFSET, NO_OFFSET, 0)
        base = piece.base_offset
        if base != NO_OFFSET:
            lowest, highest = base + index, base + index + count - 1
            first = lowest if first == NO_OFFSET or lowest < first else first
            last = highest if highest > last else last
        seen[piece.tp] = first, last, records + count
    return {tp: OffsetRange(*found) for tp, found in seen.items()}


def _offset(delivery: BatchDelivery, index: int) -> int:
    return NO_OFFSET if delivery.base_offset == NO_OFFSET else delivery.base_offset + index


def _metadata(delivery: BatchDelivery, index: int) -> RecordMetadata:
    return RecordMetadata(
        topic=delivery.tp.topic,
        partition=delivery.tp.partition,
        topic_partition=delivery.tp,
        offset=_offset(delivery, index),
        timestamp=delivery.append_time,
        checksum=None,
        serialized_key_size=UNKNOWN,
        serialized_value_size=UNKNOWN,
        serialized_header_size=UNKNOWN,
    )
