"""A batch that an application fills itself, compatible with aiokafka's BatchBuilder."""

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
    """A record in a batch: its index, its size in bytes, its timestamp."""

    offset: int
    size: int
    timestamp: int
    crc: None = None


class RecordBatch:
    """Takes records up to a total of ``batch_size`` bytes. For one task.

    ``clock`` returns the timestamp of records that have none. ``serialize`` returns the bytes of
    key and value. ``limits`` are the size limits of a record. Records are already checked when they
    are appended. So ``send_batch`` does not refuse some records after it has queued others.
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
        """Add a record. Returns None if the batch is closed, or has no room: it is then closed.

        ``timestamp`` is in milliseconds since the epoch; None means now. The first record always
        fits. Buffers are copied. Raises TypeError if key or value is not bytes, InvalidRecordError
        (a ValueError) for an invalid timestamp or header, MessageSizeTooLargeError, and what a
        serializer raises. After an exception, the batch is unchanged.
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
        """The size of a batch with only this record."""
        size = batch_size_upper_bound(key, value, headers)
        if self._limits is not None and size > self._limits.largest:
            raise for_aiokafka(self._limits.error(None, size))
        return size

    def record_count(self) -> int:
        """The number of records."""
        return len(self.records)

    def size(self) -> int:
        """An upper bound of the batch's size in bytes, before compression."""
        return self._size

    def closed(self) -> bool:
        """Whether the batch takes no more records."""
        return self._closed

    def close(self) -> None:
        """Take no more records."""
        self._closed = True


def _whole(timestamp: Any) -> Any:
    """Truncates a fraction of a millisecond, as aiokafka does."""
    return int(timestamp) if isinstance(timestamp, float) and isfinite(timestamp) else timestamp


def first_stored(outcomes: Sequence[Any]) -> Any:
    """The first outcome of a batch's records. Raises the first error, if there is one.

    ``persisted`` of this error is NO only if no record of the batch is stored.
    """
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if not failed:
        return outcomes[0]
    error = failed[0]
    if isinstance(error, KprodError):
        error = copy.copy(error)  # the original describes one record only
        persisted = {getattr(one, "persisted", Persisted.MAYBE) for one in failed}
        if len(failed) < len(outcomes) or Persisted.MAYBE in persisted:
            error.persisted = Persisted.MAYBE
    raise error
