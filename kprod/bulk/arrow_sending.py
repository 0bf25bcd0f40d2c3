"""``send_arrow``: batches of columns, written by compiled code or, where it must be, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kprod.bulk.arrow_columns import arrow_columns
from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.one_by_one import OneByOne
from kprod.bulk.partial_failure import accounted
from kprod.bulk.writing import BulkParts, BulkWriting
from kprod.config.kinds import safe_repr
from kprod.errors import (
    InvalidRecordError,
    KprodError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
from kprod.intake.arguments import SizeLimits
from kprod_ext import ArrowChunk, ArrowSource
from kprod_ext.futures import FutureRecordMetadata

CHUNK_ROWS = 1024
"""Rows whose addresses are known at the same time: in the processor's nearest cache."""

UNLIMITED = 1 << 61
"""More bytes than any record has: ``send`` itself checks the size of these records."""

FAULTS: dict[str, tuple[type[KprodError], str]] = {
    "partition": (PartitionError, "its partition is not a number from 0 to 2**31 - 1"),
    "timestamp": (InvalidRecordError, "its timestamp is before 1970 or beyond 2**63 - 1 ms"),
    "headers": (InvalidRecordError, "a header or its name is null, or its size is broken"),
    "broken": (InvalidRecordError, "the offsets of its value or key are broken"),
    "null": (InvalidRecordError, "the row as a whole is null"),
}


class ArrowBatches:
    """The batches of what ``send_arrow`` was given; ``chunk`` reads the one at hand.

    Without ``limits`` a record may be of any size.
    """

    def __init__(
        self,
        topic: str,
        data: Any,
        columns: dict[str, str | int | None],
        limits: SizeLimits | None = None,
    ) -> None:
        """Raises RecordTypeError for data or columns that cannot be sent."""
        try:
            source = ArrowSource(data)
        except TypeError as error:
            raise RecordTypeError(
                "data: expected Arrow data with columns (pyarrow.RecordBatch or Table, polars."
                f"DataFrame, anything with __arrow_c_array__ or __arrow_c_stream__): {error} in"
                f" {safe_repr(data)}"
            ) from None
        found = arrow_columns(source.columns(), **columns)
        self.chunk = ArrowChunk(CHUNK_ROWS, source, *found)
        self._topic = topic
        self._limits = limits
        self._batches = 0
        self._rows = 0

    def next(self) -> bool:
        """Go on to the next batch, every row of which is looked at; False when there is none."""
        found = self.chunk.next_batch(UNLIMITED if self._limits is None else self._limits.largest)
        if found is None:
            return False
        rows, fault = found
        if fault is not None:
            error = self._error(*fault)
            error.record = self._rows + fault[0]
            raise error
        self._batches += 1
        self._rows += rows
        return True

    def _error(self, row: int, why: str, size: int) -> KprodError:
        """What is told of a row, by its number in the whole data, as the handle counts records."""
        place = f"record {self._rows + row}"
        if self._batches:
            place += f" (row {row} of batch {self._batches})"
        if self._limits is not None and why == "size":
            return RecordTooLargeError(f"{place}: {self._limits.error(self._topic, size)}")
        kind, said = FAULTS[why]
        return kind(f"{place}: {said}")


def send_batches(parts: BulkParts, topic: str, batches: ArrowBatches) -> BulkDelivery:
    """Queue all rows, in order, by the compiled path. See ``KafkaProducer.send_arrow``."""
    more = batches.next()
    writing = BulkWriting(parts, topic)
    writing.await_partition(batches.chunk.largest_partition)
    delivery = BulkDelivery(writing.sent)
    with accounted(delivery, writing.finish):
        while more:
            writing.write(batches.chunk)
            if batches.chunk.left:
                raise MemoryError("no memory for the headers of a record")
            more = batches.next()
    return delivery


def send_batches_one_by_one(
    send: Callable[..., FutureRecordMetadata], topic: str, batches: ArrowBatches
) -> BulkDelivery:
    """Send every row by ``send``: a serializer gets bytes, as they are in the columns."""
    sending = OneByOne(send, topic)
    more = batches.next()
    with accounted(sending.delivery, lambda: None):
        while more:
            for partition, timestamp_ms, key, value, headers in _rows(batches.chunk):
                sending.send(value, key, headers, partition, timestamp_ms)
            if batches.chunk.left:
                raise MemoryError("no memory for the headers of a record")
            more = batches.next()
    return sending.delivery


def _rows(chunk: ArrowChunk) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
    while (row := chunk.next_row()) is not None:
        yield row
