"""The outcomes of the records one task sends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kprod.errors import DeliveryError, KprodError, RecordTypeError
from kprod.spark.arrow_columns import read_batch
from kprod.spark.record_shapes import RecordShapes, SendArguments
from kprod.spark.rejected_rows import BrokerRefusals
from kprod.spark.write_result import OffsetRange
from kprod.types import Persisted, TopicPartition

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery
    from kprod_ext.futures import FutureRecordMetadata


class SentRows(Protocol):
    """The arguments of a send."""

    @property
    def nbytes(self) -> int:
        """The memory they take, about."""

    def arguments(self, number: int) -> SendArguments:
        """The arguments of ``KafkaProducer.send`` for row ``number``."""

    def payload_bytes(self, number: int) -> int:
        """The bytes of key and value of row ``number``."""


class BatchRows:
    """Rows of a record batch that went to one topic; None: to those of their topic column."""

    def __init__(self, topic: str | None, batch: Any) -> None:
        self.nbytes = int(batch.nbytes)
        self._batch = batch
        self._shapes = RecordShapes(topic=topic)

    def arguments(self, number: int) -> SendArguments:
        """See SentRows. Headers that cannot be read are left away."""
        row = self._batch.slice(number, 1)
        try:
            return next(read_batch(row, self._shapes))
        except RecordTypeError:
            return next(read_batch(row.drop_columns(["headers"]), self._shapes))

    def payload_bytes(self, number: int) -> int:
        """See SentRows."""
        return OneRow(self.arguments(number)).payload_bytes(0)


class OneRow:
    """One row that was sent by itself."""

    def __init__(self, arguments: SendArguments) -> None:
        self._arguments = arguments
        self.nbytes = self.payload_bytes(0)

    def arguments(self, number: int) -> SendArguments:
        """See SentRows."""
        return self._arguments

    def payload_bytes(self, number: int) -> int:
        """See SentRows."""
        _, value, key, *_ = self._arguments
        return sum(len(data) for data in (key, value) if hasattr(data, "__len__"))


KEPT_BYTES = 32 << 20  # of rows that may still be refused; then wait for the oldest
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
    task sends. The first failed record raises, so no outcome is dropped unseen; with
    ``broker_refusals`` one that the broker refused for what it is is handed to those instead. Then
    rows are kept until their outcome, ``KEPT_BYTES`` of them. Thread: one (the task's).
    """

    def __init__(self, timeout: float, broker_refusals: BrokerRefusals | None = None) -> None:
        """``timeout`` in seconds bounds a wait for the oldest record's outcome."""
        self.records = 0
        self.bytes = 0
        self.sent = 0  # whatever became of them
        self._futures = 0  # of those
        self._kept = 0  # bytes of rows
        self._is_settling = False
        self._timeout = timeout
        self._broker_refusals = broker_refusals
        self._pending: deque[tuple[FutureRecordMetadata, SentRows | None]] = deque()
        self._calls: deque[tuple[BulkDelivery, int, SentRows | None]] = deque()  # and their bytes
        self._ranges: dict[TopicPartition, list[int]] = {}  # first, last, records

    def expect(self, future: FutureRecordMetadata, row: SentRows | None = None) -> None:
        """Take charge of one more record. Raises DeliveryError when an earlier one has failed.

        ``row`` is what it was made of, for ``BrokerRefusals``.
        """
        self._pending.append((future, self._keep(row)))
        self.sent += 1
        self._futures += 1
        if self._is_settling:
            # A call is being settled, and this row of it is sent again. The call is the oldest one
            # until all its rows are: to settle from here would send each of them once more.
            return
        if self._futures % LOOK_EVERY == 0 or self._kept > KEPT_BYTES:
            self._settle_done()
            if len(self._pending) >= MOST_PENDING or (self._kept > KEPT_BYTES and self._pending):
                self._wait_for_oldest()

    def expect_call(
        self, delivery: BulkDelivery, nbytes: int, rows: SentRows | None = None
    ) -> None:
        """Take charge of the records of a bulk call, with ``nbytes`` of keys and values.

        ``rows`` are what they were made of, for ``BrokerRefusals``. Raises DeliveryError when an
        earlier record has failed.
        """
        self._calls.append((delivery, nbytes, self._keep(rows)))
        self.sent += len(delivery)
        self._settle_done()
        while len(self._calls) > 1 and self._kept > KEPT_BYTES:
            self._wait_for_call()
        if len(self._calls) >= MOST_CALLS:
            self._wait_for_call()

    def finish(self, flush: Callable[[], None] = lambda: None) -> None:
        """Settle all that is left, after ``flush`` has waited for it.

        Raises DeliveryError unless every record was acknowledged, or refused and taken care of.
        """
        flush()
        while self._settle_done():
            flush()  # what was sent again
        if self._pending or self._calls:
            raise self._failure()

    def ranges(self) -> list[OffsetRange]:
        """The ranges of offsets acknowledged so far, by topic and partition."""
        return [
            OffsetRange(topic=tp.topic, partition=tp.partition, first=f, last=last, records=n)
            for tp, (f, last, n) in sorted(self._ranges.items())
        ]

    def _keep(self, rows: SentRows | None) -> SentRows | None:
        if self._broker_refusals is None or rows is None:
            return None
        self._kept += rows.nbytes
        return rows

    def _settle_done(self) -> bool:
        """Settle what has its outcome, in order; whether any record was sent again for that."""
        futures = self._futures
        self._is_settling = True
        try:
            self._settle_futures()
            self._settle_calls()
        finally:
            self._is_settling = False
        return self._futures > futures

    def _settle_futures(self) -> None:
        pending = self._pending
        while pending and pending[0][0].is_done:
            future, row = pending[0]
            metadata = future.value
            if metadata is None:
                self._think_again(future.exception, row, 0)
                pending.popleft()
                self._forget(row)
                continue
            pending.popleft()
            self._forget(row)
            self.bytes += max(0, metadata.serialized_key_size)
            self.bytes += max(0, metadata.serialized_value_size)
            self._count(metadata.topic_partition, metadata.offset, metadata.offset, 1)

    def _settle_calls(self) -> None:
        calls = self._calls
        while calls and calls[0][0].is_done:
            delivery, nbytes, rows = calls[0]
            if delivery.progress().failed:
                nbytes -= self._settle_one_by_one(delivery, rows)
            else:
                for tp, found in delivery.get(0).offsets.items():
                    self._count(tp, found.first, found.last, found.records)
            calls.popleft()
            self._forget(rows)
            self.bytes += nbytes

    def _settle_one_by_one(self, delivery: BulkDelivery, rows: SentRows | None) -> int:
        """A call of which records have failed; the bytes of those."""
        failed = 0
        for number, outcome in enumerate(delivery):
            if isinstance(outcome, KprodError):
                self._think_again(outcome, rows, number)
                failed += 0 if rows is None else rows.payload_bytes(number)
            elif outcome is not None:
                self._count(outcome.topic_partition, outcome.offset, outcome.offset, 1)
        return failed

    def _think_again(self, error: BaseException | None, rows: SentRows | None, at: int) -> None:
        """Hand the row to ``BrokerRefusals``. Raises DeliveryError when that does not take it."""
        refusals = self._broker_refusals
        if refusals is None or rows is None or not isinstance(error, KprodError):
            raise self._failure()
        if not refusals.take(rows.arguments(at), error):
            raise self._failure()
        self.sent -= 1  # it is counted where it went

    def _forget(self, rows: SentRows | None) -> None:
        if rows is not None:
            self._kept -= rows.nbytes

    def _wait_for_oldest(self) -> None:
        oldest = self._pending[0]
        with suppress(KprodError):  # what became of it is read from its state
            oldest[0].get(self._timeout)
        self._settle_done()
        if self._pending and self._pending[0] is oldest:
            raise self._failure()

    def _wait_for_call(self) -> None:
        oldest = self._calls[0]
        with suppress(KprodError):  # what became of it is read from its state
            oldest[0].get(self._timeout)
        self._settle_done()
        if self._calls and self._calls[0] is oldest:
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
        """The error, by the outcomes that are known: the task fails without waiting for others."""
        failed: list[_Failed] = []
        unknown, place = 0, None
        # One look at each: the sender goes on meanwhile.
        for future, _ in self._pending:
            if not future.is_done:
                unknown, place = unknown + 1, place or future.topic_partition
            elif future.failed():
                failed.append(_Failed(1, future.topic_partition, future.exception))
        for call, *_ in self._calls:
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
