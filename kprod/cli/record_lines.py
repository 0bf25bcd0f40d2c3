"""Records as lines of text: what ``kprod produce`` reads, and what ``kprod consume`` prints"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from kprod.types import Header

if TYPE_CHECKING:
    from kprod.broker.records.record_batch import StoredRecord

LineFormat: TypeAlias = Literal["text", "json"]
"""How ``kprod produce`` reads a line."""
PrintFormat: TypeAlias = Literal["value", "key-value", "json"]
"""How ``kprod consume`` prints a record."""
LINE = b"\n"
READ_AT_ONCE = 65_536
ESCAPES = {r"\t": "\t", r"\n": "\n", r"\r": "\r", r"\0": "\0"}


def unescaped(text: str) -> str:
    """A separator as it was typed, with the characters that a shell cannot pass on."""
    for typed, meant in ESCAPES.items():
        text = text.replace(typed, meant)
    return text


class LineRecord(NamedTuple):
    """One line: its number from 1, and what it says. None: the line does not say it."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class BadLineError(ValueError):
    """A line that says no record, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Reads records from lines. Line ends (LF, CRLF) are no part of a value.

    ``delimiter`` ends each record, a newline by default. In text the key is what stands before the
    first ``key_separator``; without one there are no keys. ``empty_is_null``: an empty value is a
    null, which deletes the key from a compacted topic. JSON is what ``json_line`` prints; all that
    it may leave out is not given.
    """

    delimiter: bytes = LINE
    key_separator: bytes | None = None
    empty_is_null: bool = False
    form: LineFormat = "text"

    def read(self, stream: IO[bytes]) -> Iterator[LineRecord | BadLineError]:
        """Each line as a record, or what is wrong with it."""
        parse = self._from_json if self.form == "json" else self._from_text
        for number, piece in enumerate(_pieces(stream, self.delimiter), start=1):
            try:
                yield parse(number, piece)
            except ValueError as error:
                yield BadLineError(f"line {number}: {error}")

    def _from_text(self, number: int, piece: bytes) -> LineRecord:
        if self.key_separator is None:
            return LineRecord(number, None, self._value(piece))
        key, separator, value = piece.partition(self.key_separator)
        if not separator:
            raise ValueError(f"no key: {self.key_separator.decode()!r} is not in the line")
        return LineRecord(number, key, self._value(value))

    def _value(self, value: bytes) -> bytes | None:
        return None if self.empty_is_null and not value else value

    def _from_json(self, number: int, piece: bytes) -> LineRecord:
        try:
            told = json.loads(piece)
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None
        if not isinstance(told, dict):
            raise ValueError(f"expected a JSON object, got {type(told).__name__}")
        headers = tuple(_header(one) for one in _list(told, "headers"))
        places = (_whole(told, name) for name in ("partition", "timestamp"))
        return LineRecord(number, _data(told, "key"), _data(told, "value"), headers, *places)


def _pieces(stream: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    if delimiter == LINE:
        yield from (line.removesuffix(b"\n").removesuffix(b"\r") for line in stream)
        return
    left = b""
    for chunk in iter(partial(stream.read, READ_AT_ONCE), b""):
        *pieces, left = (left + chunk).split(delimiter)
        yield from pieces
    if left.strip(b"\r\n"):  # what a shell puts behind the last delimiter is no record
        yield left


def _header(told: Any) -> Header:
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        raise ValueError('a header is an object with "name" and "value"')
    return told["name"], _data(told, "value")


def _data(told: dict[str, Any], name: str) -> bytes | None:
    coded = told.get(f"{name}_base64")
    if coded is not None:
        if not isinstance(coded, str):
            raise ValueError(f"{name}_base64: expected text, got {type(coded).__name__}")
        return base64.b64decode(coded, validate=True)
    text = told.get(name)
    if text is None or isinstance(text, str):
        return None if text is None else text.encode()
    return json.dumps(text, ensure_ascii=False, separators=(",", ":")).encode()


def _list(told: dict[str, Any], name: str) -> list[Any]:
    found = told.get(name)
    if found is not None and not isinstance(found, list):
        raise ValueError(f"{name}: expected a list, got {type(found).__name__}")
    return found or []


def _whole(told: dict[str, Any], name: str) -> int | None:
    number = told.get(name)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise ValueError(f"{name}: expected a whole number, got {number!r}")
    return number


def printed(partition: int, record: StoredRecord, form: PrintFormat, key_separator: str) -> bytes:
    """A stored record as ``kprod consume`` prints it, without what ends the line.

    Key and value are printed as they are, but in JSON.
    """
    if form == "json":
        return json_line(partition, record).encode()
    value = _shown(record.value)
    return value if form == "value" else _shown(record.key) + key_separator.encode() + value


def json_line(partition: int, record: StoredRecord) -> str:
    """A record as a JSON object; what is not UTF-8 is in base64, under ``..._base64``."""
    fields: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False)


def _shown(data: bytes | None) -> bytes:
    return b"null" if data is None else data


def _field(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
