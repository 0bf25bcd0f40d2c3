"""The outcomes of the records one task sends."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from kprod.errors import DeliveryError, KprodError
from kprod.spark.partition_report import OffsetRange
from kprod.types import Persisted

if TYPE_CHECKING:
    from kprod.buffer.future import FutureRecordMetadata
    from kprod.types import RecordMetadata, TopicPartition

LOOK_EVERY = 256  # records sent between two looks at the oldest futures
MOST_PENDING = 65_536  # futures held at most: then wait for the oldest


class Acknowledgements:
    """Settles futures in the order they were sent, and forgets them at once.

    At most ``MOST_PENDING`` futures are held, however many records a task sends. The first failed
    record raises, so no outcome is dropped unseen. Thread: one (the task's).
    """

    def __init__(self, timeout: float) -> None:
        """``timeout`` in seconds bounds a wait for the oldest record's outcome."""
        self.records = 0
        self.bytes = 0
        self._sent = 0
        self._timeout = timeout
        self._pending: deque[FutureRecordMetadata] = deque()
        self._ranges: dict[TopicPartition, list[int]] = {}  # first, last, records

    def expect(self, future: FutureRecordMetadata) -> None:
        """Take charge of one more record. Raises DeliveryError when an earlier one has failed."""
        self._pending.append(future)
        self._sent += 1
        if self._sent % LOOK_EVERY == 0:
            self._settle_done()
            if len(self._pending) >= MOST_PENDING:
                self._wait_for_oldest()

    def finish(self) -> None:
        """Settle all that is left. Raises DeliveryError unless every record was acknowledged."""
        self._settle_done()
        if self._pending:
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
            self._count(metadata)

    def _wait_for_oldest(self) -> None:
        with suppress(KprodError):  # what became of it is read from its state
            self._pending[0].get(self._timeout)
        self._settle_done()
        if len(self._pending) >= MOST_PENDING:
            raise self._failure()

    def _count(self, metadata: RecordMetadata) -> None:
        self.records += 1
        self.bytes += max(0, metadata.serialized_key_size) + max(0, metadata.serialized_value_size)
        offset = metadata.offset
        seen = self._ranges.get(metadata.topic_partition)
        if seen is None:
            self._ranges[metadata.topic_partition] = [offset, offset, 1]
            return
        seen[2] += 1
        if offset >= 0:
            seen[0] = min(seen[0], offset) if seen[0] >= 0 else offset
            seen[1] = max(seen[1], offset)

    def _failure(self) -> DeliveryError:
        """What is known now. Those without an outcome are not waited for: the task fails anyway."""
        failed = [future for future in self._pending if future.failed()]
        unknown = sum(not future.is_done for future in self._pending)
        acknowledged = self._sent - len(failed) - unknown
        first = failed[0] if failed else self._pending[0]
        why = (
            f"{type(first.exception).__name__}: {first.exception}"
            if failed
            else f"no outcome after {self._timeout:g} s"
        )
        error = DeliveryError(
            f"{len(failed):,} of {self._sent:,} records failed, {unknown:,} have no outcome yet, "
            f"{acknowledged:,} were acknowledged; first: {first.topic_partition}: {why}",
            acknowledged=acknowledged,
            failed=len(failed),
            pending=unknown,
            topic_partition=first.topic_partition,
        )
        error.__cause__ = first.exception
        causes = [future.exception for future in failed]
        if unknown or any(cause and cause.persisted is Persisted.MAYBE for cause in causes):
            error.persisted = Persisted.MAYBE
        return error
