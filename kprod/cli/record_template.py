"""Records printed by a template, with the signs of kcat's ``-f``"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kprod.types import Header

if TYPE_CHECKING:
    from kprod.broker.records.record_batch import StoredRecord

_SIGN: Final = re.compile(r"%(.?)", re.DOTALL)
_Part = Callable[[str, int, "StoredRecord"], bytes]

_PARTS: Final[Mapping[str, _Part]] = {
    "%": lambda *_: b"%",
    "t": lambda topic, _partition, _record: topic.encode(),
    "p": lambda _topic, partition, _record: b"%d" % partition,
    "o": lambda _topic, _partition, record: b"%d" % record.offset,
    "T": lambda _topic, _partition, record: b"%d" % record.timestamp,
    "k": lambda _topic, _partition, record: record.key or b"",
    "K": lambda _topic, _partition, record: _length(record.key),
    "s": lambda _topic, _partition, record: record.value or b"",
    "S": lambda _topic, _partition, record: _length(record.value),
    "h": lambda _topic, _partition, record: b",".join(map(_header, record.headers)),
}


def _length(data: bytes | None) -> bytes:
    """As kcat: a null has the length -1, which an empty value has not."""
    return b"%d" % (-1 if data is None else len(data))


def _header(header: Header) -> bytes:
    name, value = header
    return name.encode() + b"=" + (b"NULL" if value is None else bytes(value))


class RecordTemplate:
    """A text to print for each record, with a value in the place of each sign. Immutable.

    ``text``: ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp, ``%k`` and ``%s`` key
    and value as they are, ``%K`` and ``%S`` their lengths in bytes, ``%h`` headers, ``%%`` a per
    cent sign. Raises ValueError for another sign.
    """

    def __init__(self, text: str) -> None:
        unknown = [sign for sign in _SIGN.findall(text) if sign not in _PARTS]
        if unknown:
            raise ValueError(f"%{unknown[0]} stands for nothing; %{', %'.join(_PARTS)} do")
        # What is between the signs, and the signs, in turn.
        self._pieces = [
            piece.encode() if number % 2 == 0 else _PARTS[piece]
            for number, piece in enumerate(_SIGN.split(text))
        ]

    def __call__(self, topic: str, partition: int, record: StoredRecord) -> bytes:
        """One record, as bytes: its key and value need not be text."""
        return b"".join(
            piece if isinstance(piece, bytes) else piece(topic, partition, record)
            for piece in self._pieces
        )
