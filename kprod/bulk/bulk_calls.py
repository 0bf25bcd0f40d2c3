"""The bulk calls of a producer: ``send_many`` and ``send_arrow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kprod.bulk.writing import BulkParts
from kprod.intake.arguments import SizeLimits, check_topic
from kprod_ext.futures import FutureRecordMetadata

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery


class BulkCalls:
    """Part of ``KafkaProducer``: it sends many records with one call. Thread-safe.

    What only these calls need is imported by them: a tenth of what ``import kprod`` would load.
    """

    _bulk: BulkParts | None
    """None when code of the application must see each record."""
    _size_limits: SizeLimits

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Iterable[Any] | None = None,
        partitions: Iterable[int | None] | int | None = None,
        timestamps_ms: Iterable[int | None] | int | None = None,
    ) -> BulkDelivery:
        """Queue many records of one topic, in order. One handle has the outcomes.

        ``values`` is a list, tuple or iterator of values, as ``send`` takes them, or, without
        ``keys``, of ``(key, value)`` pairs. The other arguments have one item per record, or one
        value for all: a number; for ``headers`` a list of ``(str, bytes | None)`` pairs.

        Waits for memory at most ``max_block_ms`` without progress. With lists and tuples every
        argument is checked before anything is queued (values that a serializer must see first are
        not). A later error leaves the records before it queued: ``error.accepted`` is their number,
        ``error.delivery`` their handle. So do an exception of an iterator, and Ctrl-C, after which
        one record more may be queued. Raises the errors of ``send``.
        """
        from kprod.bulk.rows import RowChecks, Rows, send_rows

        self._ensure_open()
        topic = check_topic(topic)
        rows = Rows(
            values, keys=keys, headers=headers, partitions=partitions, timestamps_ms=timestamps_ms
        )
        checks = RowChecks(topic, self._size_limits.check)
        if self._bulk is None:
            from kprod.bulk.one_by_one import send_one_by_one

            return send_one_by_one(self.send, topic, rows, checks)
        return send_rows(self._bulk, topic, rows, checks)

    def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str | int | None = "value",
        key: str | int | None = None,
        headers: str | int | None = None,
        partition: str | int | None = None,
        timestamp: str | int | None = None,
    ) -> BulkDelivery:
        """Queue every row of Arrow data as a record of one topic, in order.

        ``data`` is anything with ``__arrow_c_array__`` or ``__arrow_c_stream__``: a pyarrow
        RecordBatch, Table or RecordBatchReader, a polars DataFrame. The other arguments name its
        columns, by name or number. ``value`` and ``key``: binary or text of any width, view or
        fixed size; ``headers``: a list of structs or a map, of text to binary or text;
        ``partition``: int32 or int64; ``timestamp``: any timestamp, or int64 milliseconds. A null
        is a null key, value or list; a null partition or timestamp counts as not given.

        The types of the columns, and the rows of the first batch, are checked before anything is
        queued. Waits and fails as ``send_many``. Raises RecordTypeError for data or a column that
        cannot be sent, else the errors of ``send``.
        """
        from kprod.bulk.arrow_batches import ArrowBatches, send_batches, send_batches_one_by_one

        self._ensure_open()
        topic = check_topic(topic)
        columns = {
            "value": value,
            "key": key,
            "headers": headers,
            "partition": partition,
            "timestamp": timestamp,
        }
        if self._bulk is None:
            return send_batches_one_by_one(self.send, topic, ArrowBatches(topic, data, columns))
        batches = ArrowBatches(topic, data, columns, self._size_limits)
        return send_batches(self._bulk, topic, batches)

    # Given by the producer ------------------------------------------------------------------------

    def _ensure_open(self) -> None:
        raise AssertionError("the producer has its own")

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> FutureRecordMetadata:
        raise AssertionError("the producer has its own")
