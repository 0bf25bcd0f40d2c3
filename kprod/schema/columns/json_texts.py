"""JSON texts of whole Arrow columns, as Spark's ``to_json`` writes them.

``json_writer`` makes a writer for an Arrow type, or raises RecordTypeError. The Spark driver makes
a writer to check the columns of a DataFrame, and each task makes one for its batches.

Numbers, dates and timestamps are written as in Java. Floats have the digits of ``Double.toString``
and ``Float.toString``: the fewest that distinguish the number from its neighbours, but at least
two. For some numbers, Java 18 and older write one more digit (JDK-4511638). That is another text
for the same number. Years and time zones are written as by Java's formatters. The format of a
VARIANT is Parquet's "Variant Binary Encoding", version 1.
"""

from __future__ import annotations

import base64
import datetime
import math
import re
import struct
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute, types

from kprod.errors import RecordTypeError
from kprod.schema.columns.arrow_types import (
    in_unit,
    is_bytes,
    is_list,
    is_spatial,
    is_text,
    is_variant,
    of_lists,
    plain_kind,
    plain_values,
)

SPECIAL = r'["\\\x00-\x1f]'
SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")

Write: TypeAlias = Callable[[Any], Any]
"""Converts a column to JSON texts (``large_string``); null stays null."""


def json_writer(kind: Any) -> Write:
    """The writer for columns of a type.

    Objects leave out fields that are null. In lists and maps, a null is written as ``null``. Binary
    is written in base64. Timestamps are written in ISO 8601 with milliseconds, in the time zone of
    their type. With Spark, it is the time zone of the session. Floats that are not finite become
    ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``. Raises RecordTypeError for a type that cannot be
    written as JSON.
    """
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind):
        write = json_writer(plain_kind(kind))
        return lambda column: write(plain_values(column))
    if is_variant(kind):
        return _variants
    if pa.types.is_struct(kind) and not is_spatial(kind):
        return partial(_objects, [(quoted(field.name), json_writer(field.type)) for field in kind])
    if is_list(kind):
        return partial(_lists, json_writer(kind.value_type))
    if pa.types.is_map(kind):
        return partial(_maps, _key_writer(plain_kind(kind.key_type)), json_writer(kind.item_type))
    for is_kind, write in _writers():
        if is_kind(kind):
            return write
    raise RecordTypeError(f"there is no JSON for {_shown(kind)}: cast the column to text")


def _writers() -> tuple[tuple[Callable[[Any], bool], Write], ...]:
    return (
        (is_text, _quoted),
        (types.is_integer, _plain),
        (types.is_boolean, _plain),
        (types.is_floating, _numbers),
        (types.is_decimal, _plain),
        (types.is_timestamp, lambda column: _between('"', moment_texts(column), '"')),
        (types.is_date32, lambda column: _between('"', date_texts(column), '"')),
        (is_bytes, _base64),
        (types.is_null, _plain),
    )


def _key_writer(kind: Any) -> Write:
    """Writes the keys of maps. Like ``to_json``, it writes dates and timestamps as integers.

    Raises RecordTypeError for other types, for which ``to_json`` writes Java's ``toString``, which
    does not contain the value.
    """
    if is_text(kind):
        return _quoted
    if types.is_date32(kind):
        return lambda keys: _between('"', _plain(keys.cast("int32")), '"')
    if types.is_timestamp(kind):
        return lambda keys: _between('"', _plain(keys.cast("int64")), '"')
    if types.is_floating(kind):
        return lambda keys: _between('"', number_texts(keys), '"')
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return lambda keys: _between('"', _plain(keys), '"')
    raise RecordTypeError(f"there is no name in JSON for keys of {_shown(kind)}: cast them to text")


def _shown(kind: Any) -> str:
    return "GEOMETRY or GEOGRAPHY" if is_spatial(kind) else str(kind)


def _plain(column: Any) -> Any:
    return column.cast(pa.large_string())


def _text(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _between(before: str, texts: Any, after: str) -> Any:
    return compute.binary_join_element_wise(_text(before), texts, _text(after), _text(""))


def _quoted(column: Any) -> Any:
    texts = _readable(_plain(column))
    if _any_match(texts, SPECIAL):
        for plain, escaped in ESCAPES.items():
            texts = compute.replace_substring(texts, pattern=plain, replacement=escaped)
    return _between('"', texts, '"')


def _readable(texts: Any) -> Any:
    """The texts, with U+FFFD for invalid UTF-8. Spark accepts any bytes as text."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        cells = texts.cast(pa.large_binary()).to_pylist()
        shown = [None if cell is None else _java_text(cell) for cell in cells]
        return pa.array(shown, pa.large_string())
    return texts


def _java_text(data: bytes) -> str:
    """Decode like Java: a surrogate becomes a single U+FFFD. Python would make one per byte."""
    return SURROGATE.sub(b"\xff", data).decode(errors="replace")


def _any_match(texts: Any, pattern: str) -> bool:
    return bool(compute.any(compute.match_substring_regex(texts, pattern=pattern)).as_py())


def _numbers(column: Any) -> Any:
    texts = number_texts(column)
    finite = compute.is_finite(column)
    if compute.all(finite).as_py() is not False:
        return texts
    return compute.if_else(finite, texts, _between('"', texts, '"'))


def _base64(column: Any) -> Any:
    cells = column.to_pylist()  # Arrow has no base64 of its own
    texts = [None if cell is None else base64.b64encode(cell).decode() for cell in cells]
    return _between('"', pa.array(texts, pa.large_string()), '"')


def _variants(column: Any) -> Any:
    cells = column.to_pylist()
    texts = [
        None if cell is None else variant_text(cell["value"], cell["metadata"]) for cell in cells
    ]
    return pa.array(texts, pa.large_string())


def _objects(fields: list[tuple[str, Write]], column: Any) -> Any:
    if not fields:
        return _where_valid(column, _text("{}"))
    texts = [(name, write(column.field(number))) for number, (name, write) in enumerate(fields)]
    complete = all(field.null_count == 0 for _, field in texts)
    return _where_valid(column, _whole_objects(texts) if complete else _sparse_objects(texts))


def _whole_objects(fields: list[tuple[str, Any]]) -> Any:
    pieces = [
        piece
        for number, (name, texts) in enumerate(fields)
        for piece in (_text(f"{',' if number else '{'}{name}:"), texts)
    ]
    return compute.binary_join_element_wise(*pieces, _text("}"), _text(""))


def _sparse_objects(fields: list[tuple[str, Any]]) -> Any:
    """Return JSON objects that omit null fields.

    The text of each field begins with a comma. The first comma of each object is removed.
    """
    empty = _text("")
    parts = [compute.fill_null(_between(f",{name}:", texts, ""), empty) for name, texts in fields]
    objects = compute.binary_join_element_wise(_text("{"), *parts, _text("}"), empty)
    return compute.replace_substring(objects, pattern="{,", replacement="{", max_replacements=1)


def _lists(write: Write, column: Any) -> Any:
    offsets, (values,) = of_lists(column, column.values)
    items = compute.fill_null(write(values), _text("null"))
    return _where_valid(column, _between("[", _joined(offsets, items), "]"))


def _maps(write_key: Write, write: Write, column: Any) -> Any:
    offsets, (keys, items) = of_lists(column, column.keys, column.items)
    values = compute.fill_null(write(items), _text("null"))
    pairs = compute.binary_join_element_wise(write_key(plain_values(keys)), values, _text(":"))
    return _where_valid(column, _between("{", _joined(offsets, pairs), "}"))


def _joined(offsets: Any, texts: Any) -> Any:
    """The texts of each list with these ``offsets``, with commas between them."""
    return compute.binary_join(pa.LargeListArray.from_arrays(offsets, texts), _text(","))


def _where_valid(column: Any, texts: Any) -> Any:
    if column.null_count == 0 and isinstance(texts, pa.Array):
        return texts
    return compute.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))


SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
ESCAPES = {"\\": "\\\\", '"': '\\"'} | {
    chr(code): SHORT.get(chr(code), f"\\u{code:04X}") for code in range(32)
}
"""The backslash comes first, because ``_quoted`` replaces one after the other."""
_TABLE = str.maketrans(ESCAPES)


def quoted(text: str) -> str:
    """The text as a JSON string."""
    return f'"{text.translate(_TABLE)}"'


PLAIN = (1e-3, 1e7)
"""Numbers from the first limit up to, but not including, the second have no exponent."""


def number_texts(column: Any) -> Any:
    """The texts of floats, as ``large_string``: NaN, Infinity, -0.0, 1.0E10. Null stays null."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(pa.large_string())
    size = compute.abs(column)
    low, high = (pa.scalar(limit, column.type) for limit in PLAIN)
    plain = compute.and_(compute.greater_equal(size, low), compute.less(size, high))
    plain = compute.or_(plain, compute.equal(column, pa.scalar(0, column.type)))
    whole = compute.and_(plain, compute.equal(compute.trunc(column), column))
    none, empty = pa.scalar(".0", pa.large_string()), pa.scalar("", pa.large_string())
    ends = compute.if_else(whole, none, empty)
    texts = compute.binary_join_element_wise(texts, ends, empty)
    others = compute.invert(compute.fill_null(plain, True))
    if not compute.any(others).as_py():
        return texts
    shown = zip(column.filter(others).to_pylist(), texts.filter(others).to_pylist(), strict=True)
    single = bool(pa.types.is_float32(column.type))
    written = pa.array([_scientific(number, text, single) for number, text in shown], texts.type)
    return compute.replace_with_mask(texts, others, written)


def _scientific(number: float, shortest: str, single: bool) -> str:
    if math.isnan(number):
        return "NaN"
    sign = "-" if number < 0 else ""
    if math.isinf(number):
        return f"{sign}Infinity"
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) == 1:  # of two digits those that are nearest
        two, _, power_text = f"{abs(number):.1e}".partition("e")
        if _again(float(f"{two}e{power_text}"), single) == abs(number):
            digits, power = two.replace(".", ""), int(power_text)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _again(number: float, single: bool) -> float:
    """The number that a reader gets, which is rounded to 32 bits if it is a ``single``."""
    return float(struct.unpack("f", struct.pack("f", number))[0]) if single else number


FOUR_DIGITS = (-719_528, 2_932_896)
"""The first and the last day of the years 0 to 9999, counted from 1970."""
ERA_DAYS = 146_097
"""Days in 400 years, after which the calendar repeats itself."""
DAY_MS = 86_400_000
OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?:Z|([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?)")
"""Java's time zones that are an offset."""


def date_texts(column: Any) -> Any:
    """Dates as texts: ``2026-07-01``, ``-0001-12-31``, ``+10000-01-01``. Null stays null."""
    texts = column.cast(pa.large_string())
    days = column.cast(pa.int32())
    low, high = (pa.scalar(day, pa.int32()) for day in FOUR_DIGITS)
    far = compute.or_(compute.less(days, low), compute.greater(days, high))
    if not compute.any(far).as_py():
        return texts
    far = compute.fill_null(far, False)
    written = pa.array(list(map(_far_date, days.filter(far).to_pylist())), texts.type)
    return compute.replace_with_mask(texts, far, written)


def _far_date(day: int) -> str:
    eras, rest = divmod(day, ERA_DAYS)
    alike = datetime.date(1970, 1, 1) + datetime.timedelta(rest)
    year = alike.year + 400 * eras
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{alike.month:02}-{alike.day:02}"


def moment_texts(column: Any) -> Any:
    """Times in milliseconds as texts: ``2026-07-01T08:00:00.123-04:00``, with ``Z`` for UTC.

    Milliseconds are rounded down. A timestamp without a time zone is written unchanged, without an
    offset. Raises RecordTypeError for an unknown time zone.
    """
    moments = in_unit(column, column.type.unit, "ms")
    empty = pa.scalar("", pa.large_string())
    shown, offsets = (moments, empty) if column.type.tz is None else _local(moments, column.type.tz)
    days = compute.divide(shown, DAY_MS)
    before = compute.less(compute.subtract(shown, compute.multiply(days, DAY_MS)), 0)
    days = compute.subtract(days, before.cast(pa.int64()))
    rest = compute.subtract(shown, compute.multiply(days, DAY_MS))
    dates = date_texts(days.cast(pa.int32()).cast(pa.date32()))
    times = rest.cast(pa.int32()).cast(pa.time32("ms")).cast(pa.large_string())
    letter = pa.scalar("T", pa.large_string())
    return compute.binary_join_element_wise(dates, letter, times, offsets, empty)


def _local(moments: Any, zone: str) -> tuple[Any, Any]:
    """The local times in milliseconds, and the offset of each time from UTC as text."""
    known = OFFSET.fullmatch(zone)
    if known is not None:
        offset = _seconds(known)
        shown = compute.add(moments, offset * 1000)
        return shown, pa.scalar(_offset_text(offset), pa.large_string())
    try:
        zoned = moments.cast(pa.timestamp("ms", zone))
        shown = compute.local_timestamp(zoned).cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise RecordTypeError(
            f"the time zone {zone!r} is not known here: set spark.sql.session.timeZone to one of"
            f" the IANA database, such as Europe/Rome ({error})"
        ) from None
    offsets = compute.divide(compute.subtract(shown, moments), 1000).dictionary_encode()
    texts = pa.array(map(_offset_text, offsets.dictionary.to_pylist()), pa.large_string())
    return shown, texts.take(offsets.indices)


def _seconds(offset: re.Match[str]) -> int:
    sign, hours, minutes, seconds = offset.groups()
    size = 3600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    return -size if sign == "-" else size


def _offset_text(offset: int) -> str:
    if offset == 0:
        return "Z"
    minutes, seconds = divmod(abs(offset), 60)
    end = f":{seconds:02}" if seconds else ""
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}{end}"


VERSION = 1
DAY_US = 86_400_000_000


def variant_text(value: bytes, metadata: bytes) -> str:
    """The JSON of a VARIANT. Raises RecordTypeError if it is invalid or has a TIMESTAMP.

    Spark writes a TIMESTAMP in the session's time zone, which is not known here.
    """
    try:
        if metadata[0] & 0x0F != VERSION:
            raise ValueError(f"version {metadata[0] & 0x0F}")
        return _Variant(value, metadata).text(0)
    except (IndexError, ValueError, struct.error) as error:
        raise RecordTypeError(f"a VARIANT cannot be read: {error}") from None


class _Variant:
    def __init__(self, value: bytes, metadata: bytes) -> None:
        self._value = value
        width = (metadata[0] >> 6) + 1
        count = int.from_bytes(metadata[1 : 1 + width], "little")
        ends = _integers(metadata, 1 + width, count + 1, width)
        start = 1 + width * (count + 2)
        self._names = [
            metadata[start + one : start + other].decode() for one, other in pairwise(ends)
        ]

    def text(self, at: int) -> str:
        kind, info = self._value[at] & 3, self._value[at] >> 2
        if kind == 0:
            return self._primitive(info, at + 1)
        if kind == 1:
            return quoted(self._value[at + 1 : at + 1 + info].decode())
        return self._object(info, at + 1) if kind == 2 else self._array(info, at + 1)

    def _object(self, info: int, at: int) -> str:
        count, at = self._count(info >> 4, at)
        wide = (info >> 2 & 3) + 1
        names = [self._names[number] for number in _integers(self._value, at, count, wide)]
        pairs = zip(names, self._items(count, at + count * wide, (info & 3) + 1), strict=True)
        return "{" + ",".join(f"{quoted(name)}:{text}" for name, text in pairs) + "}"

    def _array(self, info: int, at: int) -> str:
        count, at = self._count(info >> 2, at)
        return "[" + ",".join(self._items(count, at, (info & 3) + 1)) + "]"

    def _count(self, is_large: int, at: int) -> tuple[int, int]:
        width = 4 if is_large & 1 else 1
        return int.from_bytes(self._value[at : at + width], "little"), at + width

    def _items(self, count: int, at: int, width: int) -> list[str]:
        start = at + (count + 1) * width
        return [self.text(start + place) for place in _integers(self._value, at, count, width)]

    def _primitive(self, kind: int, at: int) -> str:  # noqa: PLR0911
        data = self._value[at:]
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _INTEGERS:
            return str(int.from_bytes(data[: _INTEGERS[kind]], "little", signed=True))
        if kind in _FLOATS:
            (number,) = struct.unpack_from(f"<{_FLOATS[kind]}", data)
            return _float(number, _FLOATS[kind])
        if kind in _DECIMALS:
            unscaled = int.from_bytes(data[1 : 1 + _DECIMALS[kind]], "little", signed=True)
            return _decimal(unscaled, data[0])
        if kind == _DATE:
            return f'"{_date(int.from_bytes(data[:4], "little", signed=True))}"'
        if kind == _NTZ:
            return f'"{_moment(int.from_bytes(data[:8], "little", signed=True))}"'
        if kind in (_BINARY, _LONG_TEXT):
            content = data[4 : 4 + int.from_bytes(data[:4], "little")]
            shown = base64.b64encode(content) if kind == _BINARY else content
            return quoted(shown.decode())
        raise ValueError(
            "it holds a TIMESTAMP, whose text depends on the session's zone: to_json writes it"
            if kind == _TIMESTAMP
            else f"it holds a value of kind {kind}"
        )


_CONSTANTS = {0: "null", 1: "true", 2: "false"}
_INTEGERS = {3: 1, 4: 2, 5: 4, 6: 8}
_FLOATS = {7: "d", 14: "f"}
_DECIMALS = {8: 4, 9: 8, 10: 16}
_DATE, _TIMESTAMP, _NTZ, _BINARY, _LONG_TEXT = 11, 12, 13, 15, 16
"""Codes of primitive types, with their JSON text, size in bytes or ``struct`` format."""


def _integers(data: bytes, at: int, count: int, width: int) -> list[int]:
    places = range(at, at + count * width, width)
    return [int.from_bytes(data[place : place + width], "little") for place in places]


def _float(number: float, form: str) -> str:
    text = number_texts(pa.array([number], pa.float32() if form == "f" else pa.float64()))
    shown = str(text[0].as_py())
    return shown if math.isfinite(number) else f'"{shown}"'


def _decimal(number: int, scale: int) -> str:
    """The number with all its digits, without trailing zeros."""
    digits = str(abs(number)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    return f"{'-' if number < 0 else ''}{whole}{f'.{fraction}' if fraction else ''}"


def _date(day: int) -> Any:
    return date_texts(pa.array([day], pa.int32()).cast(pa.date32()))[0].as_py()


def _moment(micros: int) -> str:
    day, rest = divmod(micros, DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    end = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{_date(day)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{end}"
