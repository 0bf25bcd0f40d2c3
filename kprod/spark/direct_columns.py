"""Record batches that ``KafkaProducer.send_arrow`` takes as they are, no row of them in Python."""

from __future__ import annotations

from typing import Any

from kprod.bulk.arrow_batches import Described, arrow_columns
from kprod.errors import RecordTypeError
from kprod.spark.record_shapes import RecordShapes
from kprod_ext import ArrowSource

FEW_ROWS = 16
"""So few are sent sooner one by one: a bulk call costs more than they do."""


def direct_columns(batch: Any, shapes: RecordShapes) -> dict[str, str | None] | None:
    """The columns of ``batch`` as ``send_arrow`` wants them named; None when it cannot take them.

    It cannot take columns that have to be converted first, and it takes headers by position, not
    by name. Raises RecordTypeError for missing or unknown columns.
    """
    import pyarrow as pa

    shapes.check_columns(batch.schema.names)
    # Of a column without a type every cell is null.
    present = {field.name for field in batch.schema if not pa.types.is_null(field.type)}
    others = {role: role for role in ("headers", "partition", "timestamp")}
    roles = {"value": shapes.value, "key": shapes.key, **others}
    chosen = {role: name if name in present else None for role, name in roles.items()}
    if any(isinstance(field.type, pa.BaseExtensionType) for field in batch.schema):
        return None
    try:
        described = ArrowSource(batch).columns()
        arrow_columns(described, **chosen)
    except RecordTypeError:
        return None  # row by row more is taken, and what is not is told
    return chosen if chosen["headers"] is None or _are_in_order(described) else None


def _are_in_order(described: list[Described]) -> bool:
    """Whether what comes first in a header is its key, as in every map."""
    form, items = next((form, items) for name, form, _, items in described if name == "headers")
    return form == "+m" or [name for name, *_ in items[0][3]] == ["key", "value"]


def payload_bytes(batch: Any, columns: dict[str, str | None]) -> int:
    """The bytes that the keys and values of ``batch`` have, in columns ``send_arrow`` takes."""
    named = (columns["value"], columns["key"])
    return sum(_bytes_of(batch.column(name)) for name in named if name is not None)


def _bytes_of(column: Any) -> int:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())  # pyarrow measures no views
    return int(compute.sum(compute.binary_length(column)).as_py() or 0)
