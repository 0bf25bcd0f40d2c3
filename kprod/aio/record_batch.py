"""Records that an application gathers itself, as aiokafka's BatchBuilder"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

from kprod.aio.errors import for_aiokafka
from kprod.errors import KprodError
from kprod.intake.arguments import SizeLimits, check_timestamp, freeze_headers
from kprod.types import Header, Persisted, owned
from kprod_ext import RecordClock, batch_size_upper_bound
from kprod_ext.batch import HEADER_BYTES


class BatchRecord(NamedTuple):
    """One record of a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]


class AppendedRecord(NamedTuple):
    """A record in a batch: its place there, its size in bytes, its timestamp."""

    offset: int
    size: int
    timestamp: int
    crc: None = None


class RecordBatch:
    """Takes records until they would not fit into ``batch_size`` bytes. For one task.

    ``clock`` stamps records without a time; ``serialize`` makes the bytes of a key and a value.
    ``limits`` are those of a record. What is appended can be sent: ``send_batch`` refuses none of
    the records when it has queued some.
    """

    def __init__(
        self,
        batch_size: int,
        clock: RecordClock,
        serialize: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        limits: SizeLimits | None = None,
    ) -> None:
        self.records: list[BatchRecord] = []
        self._batch_size = batch_size
        self._clock = clock
        self._serialize = serialize
        self._limits = limits
        self._size = HEADER_BYTES
        self._closed = False

    def append(
        self,
        *,
        key: Any,
        value: Any,
        timestamp: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None = (),
    ) -> AppendedRecord | None:
        """Add a record; None when it does not fit, which closes the batch, or it is closed.

        ``timestamp`` is milliseconds since the epoch, None for now. The first record always fits.
        Buffers are copied. Raises TypeError for what is not bytes, InvalidRecordError, a
        ValueError, for a time or a header that no record can have, MessageSizeTooLargeError, and
        what a serializer raises; the batch stays as it was then.
        """
        if self._closed:
            return None
        if self._serialize is not None:
            key, value = self._serialize(key, value)
        key, value, pairs = owned(key), owned(value), freeze_headers(headers or ())
        given = check_timestamp(_whole(timestamp))
        size = self._checked_size(key, value, pairs) - HEADER_BYTES
        if self.records and self._size + size > self._batch_size:
            self.close()
            return None
        stamp = self._clock.wall_ms() if given is None else given
        self.records.append(BatchRecord(key, value, stamp, pairs))
        self._size += size
        return AppendedRecord(len(self.records) - 1, size, stamp)

    def _checked_size(
        self, key: bytes | None, value: bytes | None, headers: tuple[Header, ...]
    ) -> int:
        """The bytes of a batch with this record alone."""
        size = batch_size_upper_bound(key, value, headers)
        if self._limits is not None and size > self._limits.largest:
            raise for_aiokafka(self._limits.error(None, size))
        return size

    def record_count(self) -> int:
        """The number of records."""
        return len(self.records)

    def size(self) -> int:
        """Bytes, at most, before compression."""
        return self._size

    def closed(self) -> bool:
        """Whether it takes no more records."""
        return self._closed

    def close(self) -> None:
        """Take no more records."""
        self._closed = True


def _whole(timestamp: Any) -> Any:
    """A fraction of a millisecond is cut off, as there."""
    return int(timestamp) if isinstance(timestamp, float) and isfinite(timestamp) else timestamp


def first_stored(outcomes: Sequence[Any]) -> Any:
    """The first of the outcomes of a batch's records. Raises the first error, if there is one.

    ``persisted`` is NO only where none of the records is stored.
    """
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if not failed:
        return outcomes[0]
    error = failed[0]
    if isinstance(error, KprodError):
        error = copy.copy(error)  # that of one record says what became of that record
        told = {getattr(one, "persisted", Persisted.MAYBE) for one in failed}
        if len(failed) < len(outcomes) or Persisted.MAYBE in told:
            error.persisted = Persisted.MAYBE
    raise error
