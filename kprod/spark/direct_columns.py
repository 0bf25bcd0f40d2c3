"""Record batches that ``KafkaProducer.send_arrow`` takes as they are, no row of them in Python."""

from __future__ import annotations

from typing import Any

from kprod.bulk.arrow_columns import arrow_columns
from kprod.errors import RecordTypeError
from kprod.spark.record_shapes import RecordShapes
from kprod_ext import ArrowSource


def direct_columns(batch: Any, shapes: RecordShapes) -> dict[str, str | None] | None:
    """The columns of ``batch`` as ``send_arrow`` wants them named; None when it cannot take them.

    It cannot when rows name their own topic, when a serializer wants text as text, and for columns
    that have to be converted first. Raises RecordTypeError for missing or unknown columns.
    """
    names = batch.schema.names
    shapes.check_columns(names)
    if shapes.topic is None or not (shapes.encode_key and shapes.encode_value):
        return None
    others = {role: role for role in ("headers", "partition", "timestamp")}
    roles = {"value": shapes.value, "key": shapes.key, **others}
    chosen = {role: name if name in names else None for role, name in roles.items()}
    try:
        arrow_columns(ArrowSource(batch).columns(), **chosen)
    except RecordTypeError:
        return None  # row by row more is taken, and what is not is told with the record's number
    return chosen


def payload_bytes(batch: Any, columns: dict[str, str | None]) -> int:
    """The bytes that the keys and values of ``batch`` have, in columns ``send_arrow`` takes."""
    named = (columns["value"], columns["key"])
    return sum(_bytes_of(batch.column(name)) for name in named if name is not None)


def _bytes_of(column: Any) -> int:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_null(column.type):
        return 0
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())  # pyarrow measures no views
    return int(compute.sum(compute.binary_length(column)).as_py() or 0)
