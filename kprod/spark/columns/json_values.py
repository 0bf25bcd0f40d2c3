"""JSON texts of a whole Arrow column at once, as Spark's own ``to_json`` writes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from kprod.errors import RecordTypeError

CONTROL = r"[\x00-\x1f]"
SPECIAL = r'["\\\x00-\x1f]'
ESCAPES = {chr(n): json.dumps(chr(n))[1:-1] for n in range(32)}


def json_texts(column: Any) -> Any:
    """One JSON text for each cell of a ``pyarrow.Array``, as ``large_string``; null for null.

    Fields that are null are left out of objects, and nulls in lists are ``null``. Binary becomes
    base64, a timestamp ISO 8601 in milliseconds (UTC with a zone, as it is without), what is not a
    number ``"NaN"`` or ``"Infinity"``. Raises RecordTypeError for a type JSON has no form for.
    """
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return json_texts(column.storage)
    if pa.types.is_dictionary(kind):
        return json_texts(column.dictionary_decode())
    for is_kind, write in _writers():
        if is_kind(kind):
            return write(column)
    raise RecordTypeError(f"there is no JSON for {kind}: cast the column to text")


def _writers() -> tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...]:
    from pyarrow import types

    return (
        (types.is_struct, _objects),
        (lambda kind: types.is_string(kind) or types.is_large_string(kind), _quoted),
        (types.is_integer, _plain),
        (types.is_boolean, _plain),
        (types.is_floating, _numbers),
        (types.is_decimal, _plain),
        (types.is_timestamp, _timestamps),
        (types.is_date, lambda column: _between('"', _plain(column), '"')),
        (lambda kind: types.is_list(kind) or types.is_large_list(kind), _lists),
        (types.is_map, _maps),
        (lambda kind: types.is_binary(kind) or types.is_large_binary(kind), _base64),
        (types.is_string_view, _quoted),
        (types.is_binary_view, _base64),
        (types.is_null, _plain),
    )


def _plain(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.large_string())


def _text(text: str) -> Any:
    import pyarrow as pa

    return pa.scalar(text, pa.large_string())


def _between(before: str, texts: Any, after: str) -> Any:
    from pyarrow import compute

    return compute.binary_join_element_wise(_text(before), texts, _text(after), _text(""))


def _quoted(column: Any) -> Any:
    from pyarrow import compute

    texts = _readable(_plain(column))
    if _any_match(texts, SPECIAL):
        for plain, escaped in (("\\", "\\\\"), ('"', '\\"')):
            texts = compute.replace_substring(texts, pattern=plain, replacement=escaped)
        if _any_match(texts, CONTROL):
            for plain, escaped in ESCAPES.items():
                texts = compute.replace_substring(texts, pattern=plain, replacement=escaped)
    return _between('"', texts, '"')


def _readable(texts: Any) -> Any:
    """With U+FFFD for bytes that are no UTF-8: Spark lets any bytes pass for text."""
    import pyarrow as pa

    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        cells = texts.cast(pa.large_binary()).to_pylist()
        shown = [None if cell is None else cell.decode(errors="replace") for cell in cells]
        return pa.array(shown, pa.large_string())
    return texts


def _any_match(texts: Any, pattern: str) -> bool:
    from pyarrow import compute

    return bool(compute.any(compute.match_substring_regex(texts, pattern=pattern)).as_py())


def _numbers(column: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = _plain(column)
    if compute.all(compute.is_finite(column)).as_py() is not False:
        return texts
    words = compute.if_else(
        compute.is_nan(column),
        _text('"NaN"'),
        compute.if_else(
            compute.greater(column, pa.scalar(0, column.type)),
            _text('"Infinity"'),
            _text('"-Infinity"'),
        ),
    )
    return compute.if_else(compute.is_finite(column), texts, words)


def _timestamps(column: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    zone = "" if column.type.tz is None else "Z"
    # Without a zone what is stored is what is shown, and stored is UTC.
    moments = column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))
    # Not by a cast, which would make the last millisecond before 1970 the first one of it.
    shown = compute.floor_temporal(moments, unit="millisecond").cast(pa.timestamp("ms"))
    return _between('"', _plain(compute.strftime(shown, format="%Y-%m-%dT%H:%M:%S")), f'{zone}"')


def _base64(column: Any) -> Any:
    import pyarrow as pa

    cells = column.to_pylist()  # Arrow has no base64 of its own
    texts = [None if cell is None else base64.b64encode(cell).decode() for cell in cells]
    return _between('"', pa.array(texts, pa.large_string()), '"')


def _objects(column: Any) -> Any:
    fields = [(json.dumps(field.name), column.field(n)) for n, field in enumerate(column.type)]
    if not fields:
        return _where_valid(column, _text("{}"))
    texts = [(name, json_texts(field)) for name, field in fields]
    complete = all(field.null_count == 0 for _, field in texts)
    return _where_valid(column, _whole_objects(texts) if complete else _sparse_objects(texts))


def _whole_objects(fields: list[tuple[str, Any]]) -> Any:
    from pyarrow import compute

    pieces = [
        piece
        for number, (name, texts) in enumerate(fields)
        for piece in (_text(f"{',' if number else '{'}{name}:"), texts)
    ]
    return compute.binary_join_element_wise(*pieces, _text("}"), _text(""))


def _sparse_objects(fields: list[tuple[str, Any]]) -> Any:
    """Each field begins with its comma, and the first comma of each object is cut out."""
    from pyarrow import compute

    empty = _text("")
    parts = [compute.fill_null(_between(f",{name}:", texts, ""), empty) for name, texts in fields]
    objects = compute.binary_join_element_wise(_text("{"), *parts, _text("}"), empty)
    return compute.replace_substring(objects, pattern="{,", replacement="{", max_replacements=1)


def _lists(column: Any) -> Any:
    from pyarrow import compute

    items = compute.fill_null(json_texts(column.values), _text("null"))
    return _where_valid(column, _between("[", _joined(column, items), "]"))


def _maps(column: Any) -> Any:
    from pyarrow import compute

    keys = column.keys
    texts = json_texts(keys)
    if not _is_text(keys.type):  # a name is a text, whatever its type was
        texts = _quoted(texts)
    values = compute.fill_null(json_texts(column.items), _text("null"))
    pairs = compute.binary_join_element_wise(texts, values, _text(":"))
    return _where_valid(column, _between("{", _joined(column, pairs), "}"))


def _joined(column: Any, texts: Any) -> Any:
    """The texts of each list of ``column``, with commas between them."""
    import pyarrow as pa
    from pyarrow import compute

    lists = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), texts)
    return compute.binary_join(lists, _text(","))


def _where_valid(column: Any, texts: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    if column.null_count == 0 and isinstance(texts, pa.Array):
        return texts
    return compute.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )
