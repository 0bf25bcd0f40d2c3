"""Records as lines of text, which ``kprod produce`` reads and ``kprod consume`` prints."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, TypeAlias

from kprod.cli.terminal import json_text
from kprod.types import Header

if TYPE_CHECKING:
    from kprod.records.record_batch import StoredRecord

LineFormat: TypeAlias = Literal["text", "json"]
"""How ``kprod produce`` reads a line."""
PrintFormat: TypeAlias = Literal["value", "key-value", "json"]
"""How ``kprod consume`` prints a record."""
Show: TypeAlias = Callable[[bytes], bytes]
"""Converts a key or value to its printed form."""
LINE = b"\n"
NO_TIME = -1
"""Kafka's timestamp of a record without one."""
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPED = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def typed(text: str) -> bytes:
    """The bytes of an argument. Bytes that are not UTF-8 reach Python as lone surrogates."""
    return text.encode(errors="surrogateescape")


def unescaped(text: str) -> bytes:
    r"""The bytes of a separator, with the escapes ``\t \n \r \0 \\ \xNN`` replaced.

    Raises ValueError for another escape.
    """
    return _ESCAPE.sub(_meant, typed(text))


def _meant(escape: re.Match[bytes]) -> bytes:
    sign = escape[1]
    if sign.startswith(b"x") and len(sign) == 3:
        return bytes.fromhex(sign[1:].decode())
    if sign not in _ESCAPED:
        shown = escape[0].decode(errors="backslashreplace")
        raise ValueError(rf"{shown}: expected \t, \n, \r, \0, \xNN, or \\ for a backslash")
    return _ESCAPED[sign]


class LineRecord(NamedTuple):
    """The record in a line, and the line's number from 1. Fields that the line omits are None."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class BadLineError(ValueError):
    """A line that is not a valid record, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Reads records from lines. Line ends (LF, CRLF) are not part of a value.

    ``delimiter`` ends each record; by default, it is a newline. In the text format, the key is
    everything before the first ``key_separator``. If no separator is given, records have no keys.
    With ``empty_is_null``, an empty value becomes null, which deletes the key from a compacted
    topic. JSON has the format of ``json_line``, but only the value is required. A value or key that
    is not a JSON string is sent as its JSON text, unchanged.
    """

    delimiter: bytes = LINE
    key_separator: bytes | None = None
    empty_is_null: bool = False
    form: LineFormat = "text"

    def read(
        self, chunks: Iterable[bytes], cut_off: Callable[[], bool] = lambda: False
    ) -> Iterator[LineRecord | BadLineError]:
        """Each line as a record or an error. The parameters are as in ``pieces``."""
        parse = self._from_json if self.form == "json" else self._from_text
        for number, piece in enumerate(pieces(chunks, self.delimiter, cut_off), start=1):
            try:
                if piece is None:
                    raise ValueError("stopped before its end; it is not sent")
                yield parse(number, piece)
            except ValueError as error:
                yield BadLineError(f"line {number}: {error}")

    def _from_text(self, number: int, piece: bytes) -> LineRecord:
        if self.key_separator is None:
            return LineRecord(number, None, self._value(piece))
        key, separator, value = piece.partition(self.key_separator)
        if not separator:
            shown = self.key_separator.decode(errors="backslashreplace")
            raise ValueError(f"no key: {shown!r} is not in the line")
        return LineRecord(number, key, self._value(value))

    def _value(self, value: bytes) -> bytes | None:
        return None if self.empty_is_null and not value else value

    def _from_json(self, number: int, piece: bytes) -> LineRecord:
        text = piece.decode("utf-8-sig")
        try:
            _DECODER.decode(text)
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None
        fields = _fields(text, LINE_FIELDS)
        key = _data(fields, "key") if fields.keys() & {"key", "key_base64"} else None
        time = _whole(fields, "timestamp")
        return LineRecord(
            number,
            key,
            _data(fields, "value"),
            _headers(fields),
            _whole(fields, "partition"),
            None if time == NO_TIME else time,
        )


def pieces(
    chunks: Iterable[bytes], delimiter: bytes, cut_off: Callable[[], bool] = lambda: False
) -> Iterator[bytes | None]:
    """Split the input at the delimiter. If the delimiter is a newline, CRLF also counts.

    ``chunks`` are the input in parts of any size. After the last chunk, ``cut_off`` is called. It
    says whether the input was interrupted. If it was, the piece after the last delimiter is None.
    """
    left = bytearray()
    for chunk in chunks:
        searched = max(0, len(left) - len(delimiter) + 1)
        left += chunk
        if left.find(delimiter, searched) < 0:
            continue
        *whole, rest = bytes(left).split(delimiter)
        left = bytearray(rest)
        for piece in whole:
            yield piece.removesuffix(b"\r") if delimiter == LINE else piece
    if delimiter != LINE and not left.strip(b"\r\n"):
        return  # the newline that a shell adds after the last delimiter is not a record
    if left:
        yield None if cut_off() else bytes(left)


HEADER_FIELDS = ("name", "value", "value_base64")
LINE_FIELDS = (
    *("partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64"),
    "headers",
)
"""The members that ``json_line`` prints. The offset is ignored: the broker assigns a new one."""


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_no_json)
"""Finds where a value ends. Its numbers are not used: they may have any length."""
_BETWEEN = re.compile(r"[ \t\r\n,:]*")


def _inside(text: str) -> Iterator[str]:
    """The elements of a valid JSON array, or the names and values of an object, as written."""
    end = text.index(text.lstrip()[0]) + 1
    while text[start := _BETWEEN.match(text, end).end()] not in "]}":  # type: ignore[union-attr]
        _value, end = _DECODER.raw_decode(text, start)
        yield text[start:end]


def _fields(text: str, known: Sequence[str]) -> dict[str, str]:
    """The members of a valid JSON object by name. The values are as written."""
    if not text.lstrip().startswith("{"):
        raise ValueError(f"expected a JSON object, got {text.strip()[:20]}")
    parts = list(_inside(text))
    names = [json.loads(name) for name in parts[::2]]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"unknown member {unknown[0]!r}; the members are {', '.join(known)}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is given twice")
    return dict(zip(names, parts[1::2], strict=True))


def _header(text: str) -> Header:
    fields = _fields(text, HEADER_FIELDS)
    if not fields.get("name", "").startswith('"'):
        raise ValueError('a header is an object with "name" and "value"')
    return json.loads(fields["name"]), _data(fields, "value")


def _data(fields: dict[str, str], name: str) -> bytes | None:
    """The bytes of the member ``name`` or ``..._base64``. Raises ValueError unless there is one."""
    coded, text = fields.get(f"{name}_base64"), fields.get(name)
    if (coded is None) is (text is None):
        raise ValueError(f'expected "{name}" or "{name}_base64"')
    if coded is not None:
        if not coded.startswith('"'):
            raise ValueError(f"{name}_base64: expected a string, got {coded[:20]}")
        try:
            return base64.b64decode(json.loads(coded), validate=True)
        except ValueError as error:
            raise ValueError(f"{name}_base64: {error}") from None
    assert text is not None
    if text == "null":
        return None
    data: str = json.loads(text) if text.startswith('"') else text
    return data.encode()


def _headers(fields: dict[str, str]) -> tuple[Header, ...]:
    text = fields.get("headers", "null")
    if text != "null" and not text.startswith("["):
        raise ValueError(f"headers: expected a list, got {text[:20]}")
    return () if text == "null" else tuple(map(_header, _inside(text)))


def _whole(fields: dict[str, str], name: str) -> int | None:
    text = fields.get(name, "null")
    if text != "null" and not re.fullmatch("-?[0-9]{1,20}", text):
        raise ValueError(f"{name}: expected a whole number, got {text[:20]}")
    return None if text == "null" else int(text)


def printed(
    partition: int, record: StoredRecord, form: PrintFormat, key_separator: bytes, show: Show
) -> bytes:
    """The text that ``kprod consume`` prints for a stored record, without the delimiter.

    ``show`` converts key and value, except in JSON. A null is printed as ``null``.
    """
    if form == "json":
        return json_line(partition, record).encode()
    key, value = (b"null" if data is None else show(data) for data in (record.key, record.value))
    return value if form == "value" else key + key_separator + value


def json_line(partition: int, record: StoredRecord) -> str:
    """A record as a JSON object. Bytes that are not UTF-8 are in base64, as ``..._base64``."""
    fields: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }
    return json_text(fields)


def _field(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
