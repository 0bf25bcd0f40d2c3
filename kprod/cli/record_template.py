"""Prints records by a template, with the placeholders of kcat's option ``-f``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kprod.cli.record_lines import Show, unescaped
from kprod.types import Header

if TYPE_CHECKING:
    from kprod.records.record_batch import StoredRecord

_SIGN: Final = re.compile(r"%(.?)", re.DOTALL)
_Part = Callable[[str, int, "StoredRecord", Show], bytes]

_PARTS: Final[Mapping[str, _Part]] = {
    "%": lambda *_: b"%",
    "t": lambda topic, *_: topic.encode(),
    "p": lambda _topic, partition, *_: b"%d" % partition,
    "o": lambda _topic, _partition, record, _show: b"%d" % record.offset,
    "T": lambda _topic, _partition, record, _show: b"%d" % record.timestamp,
    "k": lambda _topic, _partition, record, show: show(record.key or b""),
    "K": lambda _topic, _partition, record, _show: _length(record.key),
    "s": lambda _topic, _partition, record, show: show(record.value or b""),
    "S": lambda _topic, _partition, record, _show: _length(record.value),
    "h": lambda _topic, _partition, record, show: show(b",".join(map(_header, record.headers))),
}


def _length(data: bytes | None) -> bytes:
    """The length of a key or value. As in kcat, the length of a null is -1."""
    return b"%d" % (-1 if data is None else len(data))


def _header(header: Header) -> bytes:
    name, value = header
    return name.encode() + b"=" + (b"NULL" if value is None else bytes(value))


class RecordTemplate:
    """A text to print for each record, with placeholders for its values. Immutable.

    The placeholders in ``text`` are: ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T``
    timestamp, ``%k`` key, ``%s`` value, ``%K`` and ``%S`` the lengths of key and value in bytes,
    ``%h`` headers, ``%%`` a per cent sign. The escapes are those of ``unescaped``. ``show``
    converts keys, values and headers. Raises ValueError for another placeholder or escape.
    """

    def __init__(self, text: str, show: Show = bytes) -> None:
        unknown = [sign for sign in _SIGN.findall(text) if sign not in _PARTS]
        if unknown:
            raise ValueError(f"unknown placeholder %{unknown[0]}; there are %{', %'.join(_PARTS)}")
        # Literal text and placeholders, alternately.
        self._show = show
        self._pieces = [
            unescaped(piece) if number % 2 == 0 else _PARTS[piece]
            for number, piece in enumerate(_SIGN.split(text))
        ]

    def __call__(self, topic: str, partition: int, record: StoredRecord) -> bytes:
        """The text to print, as bytes, because key and value need not be text."""
        return b"".join(
            piece if isinstance(piece, bytes) else piece(topic, partition, record, self._show)
            for piece in self._pieces
        )
