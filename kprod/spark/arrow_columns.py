"""From a ``pyarrow.RecordBatch`` to the arguments of ``KafkaProducer.send``, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from kprod.bulk.arrow_batches import Described, arrow_columns
from kprod.errors import RecordTypeError
from kprod.spark.record_shapes import RecordShapes, SendArguments, read_headers, required_topic
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


SLICE_ROWS = 8_192  # rows that are Python objects at the same time


def read_batch(batch: Any, shapes: RecordShapes) -> Iterator[SendArguments]:
    """The rows of ``batch``, which has the columns that ``RecordShapes`` describes.

    Raises RecordTypeError for missing or unknown columns and for types no record can carry.
    """
    shapes.check_columns(batch.schema.names)
    for start in range(0, batch.num_rows, SLICE_ROWS):
        yield from _read_slice(batch.slice(start, SLICE_ROWS), shapes)


def _read_slice(batch: Any, shapes: RecordShapes) -> Iterator[SendArguments]:
    present = set(batch.schema.names)

    def cells(name: str, read: Any = _plain) -> Any:
        return read(batch.column(name)) if name in present else repeat(None)

    topics = cells("topic", _texts) if shapes.topic is None else repeat(shapes.topic)
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


def _texts(column: Any) -> list[Any]:
    try:
        return _plain(column)
    except UnicodeDecodeError as error:  # Spark lets any bytes pass for text
        raise RecordTypeError(f"a text is no UTF-8: {error.reason}") from error


def _headers(column: Any) -> list[Any]:
    return [None if cell is None else read_headers(cell) for cell in _texts(column)]


def unreadable_rows(batch: Any, shapes: RecordShapes) -> dict[int, RecordTypeError]:
    """The rows of which ``read_batch`` cannot read the topic or the headers, though others can be.

    A column of headers that is of a wrong type has none: that is no matter of rows.
    """
    readers: dict[str, Callable[[Any], Any]] = {}
    if shapes.topic is None and "topic" in batch.schema.names:
        readers["topic"] = lambda column: list(map(required_topic, _texts(column)))
    if "headers" in batch.schema.names and _may_be_headers(batch.column("headers").type):
        readers["headers"] = _headers
    found: dict[int, RecordTypeError] = {}
    for name, read in readers.items():
        column = batch.column(name)
        if _why_not(read, column) is None:
            continue
        for row in range(len(column)):
            error = _why_not(read, column.slice(row, 1))
            if error is not None:
                found.setdefault(row, error)
    return found


def _may_be_headers(kind: Any) -> bool:
    import pyarrow as pa

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(pa.types.is_map(kind) or (lists and pa.types.is_struct(kind.value_type)))


def _why_not(read: Callable[[Any], Any], column: Any) -> RecordTypeError | None:
    try:
        read(column)
    except RecordTypeError as error:
        return error
    return None


def _milliseconds(column: Any) -> list[Any]:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_timestamp(column.type):
        told = column.cast(pa.int64())
        parts = {"us": 1_000, "ns": 1_000_000}.get(column.type.unit, 1)
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        if parts > 1:  # cut towards zero by the cast, which is upwards before 1970
            above = compute.greater(compute.multiply(column, parts), told)
            column = compute.subtract(column, above.cast(pa.int64()))
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise RecordTypeError(
            f"the timestamp column must hold timestamps or ms since the epoch, not {column.type}"
        )
    return _plain(column)
