"""The outcomes of the records one task sends."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kprod.errors import DeliveryError, KprodError
from kprod.spark.partition_report import OffsetRange
from kprod.types import Persisted, TopicPartition

if TYPE_CHECKING:
    from kprod.buffer.future import FutureRecordMetadata
    from kprod.bulk.delivery import BulkDelivery

LOOK_EVERY = 256  # records sent between two looks at the oldest futures
MOST_PENDING = 65_536  # futures held at most: then wait for the oldest
MOST_CALLS = 256  # handles of bulk calls held at most


class _Failed(NamedTuple):
    """Records that have failed together, and why."""

    records: int
    topic_partition: TopicPartition | None
    cause: BaseException | None
    persisted: Persisted = Persisted.NO

    @property
    def may_be_stored(self) -> bool:
        """Whether any of them may be in the log all the same."""
        doubtful = isinstance(self.cause, KprodError) and self.cause.persisted is Persisted.MAYBE
        return doubtful or self.persisted is Persisted.MAYBE


class Acknowledgements:
    """Settles futures and bulk calls, each in the order they were sent, and forgets them at once.

    At most ``MOST_PENDING`` futures and ``MOST_CALLS`` handles are held, however many records a
    task sends. The first failed record raises, so no outcome is dropped unseen. Thread: one (the
    task's).
    """

    def __init__(self, timeout: float) -> None:
        """``timeout`` in seconds bounds a wait for the oldest record's outcome."""
        self.records = 0
        self.bytes = 0
        self.sent = 0  # whatever became of them
        self._futures = 0  # of those
        self._timeout = timeout
        self._pending: deque[FutureRecordMetadata] = deque()
        self._calls: deque[tuple[BulkDelivery, int]] = deque()  # and the bytes of each
        self._ranges: dict[TopicPartition, list[int]] = {}  # first, last, records

    def expect(self, future: FutureRecordMetadata) -> None:
        """Take charge of one more record. Raises DeliveryError when an earlier one has failed."""
        self._pending.append(future)
        self.sent += 1
        self._futures += 1
        if self._futures % LOOK_EVERY == 0:
            self._settle_done()
            if len(self._pending) >= MOST_PENDING:
                self._wait_for_oldest()

    def expect_call(self, delivery: BulkDelivery, nbytes: int) -> None:
        """Take charge of the records of a bulk call, with ``nbytes`` of keys and values.

        Raises DeliveryError when an earlier record has failed.
        """
        self._calls.append((delivery, nbytes))
        self.sent += len(delivery)
        self._settle_done()
        if len(self._calls) >= MOST_CALLS:
            with suppress(KprodError):  # what became of it is read from its state
                self._calls[0][0].get(self._timeout)
            self._settle_done()
            if len(self._calls) >= MOST_CALLS:
                raise self._failure()

    def finish(self) -> None:
        """Settle all that is left. Raises DeliveryError unless every record was acknowledged."""
        self._settle_done()
        if self._pending or self._calls:
            raise self._failure()

    def ranges(self) -> list[OffsetRange]:
        """What was acknowledged so far, by topic and partition."""
        return [
            OffsetRange(topic=tp.topic, partition=tp.partition, first=f, last=last, records=n)
            for tp, (f, last, n) in sorted(self._ranges.items())
        ]

    def _settle_done(self) -> None:
        pending = self._pending
        while pending and pending[0].is_done:
            metadata = pending[0].value
            if metadata is None:
                raise self._failure()
            pending.popleft()
            sizes = metadata.serialized_key_size, metadata.serialized_value_size
            self.bytes += sum(max(0, size) for size in sizes)
            self._count(metadata.topic_partition, metadata.offset, metadata.offset, 1)
        calls = self._calls
        while calls and calls[0][0].is_done:
            delivery, nbytes = calls[0]
            if delivery.progress().failed:
                raise self._failure()
            report = delivery.get(0)
            calls.popleft()
            self.bytes += nbytes
            for tp, found in report.offsets.items():
                self._count(tp, found.first, found.last, found.records)

    def _wait_for_oldest(self) -> None:
        with suppress(KprodError):  # what became of it is read from its state
            self._pending[0].get(self._timeout)
        self._settle_done()
        if len(self._pending) >= MOST_PENDING:
            raise self._failure()

    def _count(self, tp: TopicPartition, first: int, last: int, records: int) -> None:
        self.records += records
        seen = self._ranges.get(tp)
        if seen is None:
            self._ranges[tp] = [first, last, records]
            return
        seen[2] += records
        if first >= 0:
            seen[0] = min(seen[0], first) if seen[0] >= 0 else first
            seen[1] = max(seen[1], last)

    def _failure(self) -> DeliveryError:
        """What is known now. Those without an outcome are not waited for: the task fails anyway."""
        failed: list[_Failed] = []
        unknown, place = 0, None
        # One look at each: the sender goes on meanwhile.
        for future in self._pending:
            if not future.is_done:
                unknown, place = unknown + 1, place or future.topic_partition
            elif future.failed():
                failed.append(_Failed(1, future.topic_partition, future.exception))
        for call, _ in self._calls:
            known = call.progress()
            unknown, place = unknown + known.pending, place or known.waits_for
            if known.failure is not None:
                tp, maybe = known.failure.topic_partition, known.failure.persisted
                failed.append(_Failed(known.failed, tp, known.failure.__cause__, maybe))
        records = sum(one.records for one in failed)
        acknowledged = self.sent - records - unknown
        cause = None
        if failed:
            place, cause = failed[0].topic_partition, failed[0].cause
        why = (
            f"{type(cause).__name__}: {cause}"
            if failed
            else f"no outcome after {self._timeout:g} s"
        )
        error = DeliveryError(
            f"{records:,} of {self.sent:,} records failed, {unknown:,} have no outcome yet,"
            f" {acknowledged:,} were acknowledged; {f'first: {place}: ' if place else ''}{why}",
            acknowledged=acknowledged,
            failed=records,
            pending=unknown,
            topic_partition=place,
        )
        error.__cause__ = cause
        if unknown or any(one.may_be_stored for one in failed):
            error.persisted = Persisted.MAYBE
        return error
