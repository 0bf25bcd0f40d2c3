"""The bulk calls of a producer: ``send_many`` and ``send_arrow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kprod.bulk.writing import BulkParts
from kprod.intake.arguments import SizeLimits, check_topic
from kprod.intake.interceptors import Interceptors
from kprod.intake.serializers import Serializers
from kprod_ext.futures import FutureRecordMetadata

if TYPE_CHECKING:
    from kprod.bulk.delivery import BulkDelivery


class BulkCalls:
    """The part of ``KafkaProducer`` that sends many records with one call. Thread-safe.

    Modules that only these calls need are imported on the first call. Otherwise, they would take up
    a tenth of the time of ``import kprod``.
    """

    _bulk: BulkParts | None
    """None if each record has to pass through code of the application."""
    _size_limits: SizeLimits
    _serializers: Serializers
    _interceptors: Interceptors

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
        """Queue many records of one topic, in order. Return one handle for all results.

        ``values`` is a list, tuple or iterator of values that ``send`` would accept. Without
        ``keys``, an item may also be a ``(key, value)`` pair. Each of the other arguments has one
        item for each record, or is one value for all records: a number, or for ``headers`` a list
        of ``(str, bytes | None)`` pairs.

        Lists and tuples are checked before anything is queued, except for keys and values that
        serializers or interceptors may change. Raises the errors of ``send``. Times out if
        ``max_block_ms`` pass without a queued record.

        After a later error, or an exception of an iterator, the records that were queued before
        stay queued. ``error.accepted`` is their number, and ``error.delivery`` is their handle.
        After Ctrl-C, one record more than ``error.accepted`` may be queued.
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

            changes = bool(self._serializers) or self._interceptors.change_records
            largest = None if changes else self._size_limits.largest_payload
            return send_one_by_one(self.send, topic, rows, checks, largest)
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

        ``data`` is an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``, such as a
        pyarrow RecordBatch, Table or RecordBatchReader, or a polars DataFrame. The other arguments
        are names or numbers of columns of the data. ``value`` and ``key``: binary or text of any
        width, view or fixed size. ``headers``: a list of structs, or a map, from text to binary or
        text. ``partition``: int32 or int64. ``timestamp``: any timestamp, or int64 milliseconds. A
        null in ``value``, ``key`` or ``headers`` is a null value, a null key or no headers. A row
        with a null partition or timestamp is sent as if none were given.

        The column types and the rows of the first batch are checked before anything is queued.
        Raises RecordTypeError for data or a column that cannot be sent. Apart from that, the call
        waits and raises like ``send_many``.
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
