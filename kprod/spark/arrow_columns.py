"""From a ``pyarrow.RecordBatch`` to the arguments of ``KafkaProducer.send``, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from kprod.errors import RecordTypeError
from kprod.spark.record_fields import read_headers
from kprod.spark.record_shapes import RecordShapes, SendArguments, required_topic

SLICE_ROWS = 8_192  # rows that are Python objects at the same time


def read_batch(batch: Any, shapes: RecordShapes) -> Iterator[SendArguments]:
    """The rows of ``batch``, whose columns are those ``RecordShapes`` describes.

    Raises RecordTypeError for missing or unknown columns and for types no record can carry.
    """
    shapes.check_columns(batch.schema.names)
    for start in range(0, batch.num_rows, SLICE_ROWS):
        yield from _read_slice(batch.slice(start, SLICE_ROWS), shapes)


def _read_slice(batch: Any, shapes: RecordShapes) -> Iterator[SendArguments]:
    present = set(batch.schema.names)

    def cells(name: str, read: Any = _plain) -> Any:
        return read(batch.column(name)) if name in present else repeat(None)

    topics = cells("topic") if shapes.topic is None else repeat(shapes.topic)
    return zip(
        map(required_topic, topics),
        cells(shapes.value, _binary if shapes.encode_value else _plain),
        cells(shapes.key, _binary if shapes.encode_key else _plain),
        cells("headers", _headers),
        cells("partition"),
        cells("timestamp", _milliseconds),
        strict=False,  # the constant ones have no end
    )


def _plain(column: Any) -> list[Any]:
    cells: list[Any] = column.to_pylist()
    return cells


def _binary(column: Any) -> list[Any]:
    """Bytes of every kind of text and binary column; others as they are, for ``send`` to judge."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    textual = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_binary,
    )
    if any(is_kind(kind) for is_kind in textual):
        column = column.cast(pa.large_binary())
    return _plain(column)


def _headers(column: Any) -> list[Any]:
    return [None if cell is None else read_headers(cell) for cell in column.to_pylist()]


def _milliseconds(column: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise RecordTypeError(
            f"the timestamp column must hold timestamps or ms since the epoch, not {column.type}"
        )
    return _plain(column)
