"""Kafka's primitive types: reading them from bytes that may be hostile, and writing them.

Source: the Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for the compact forms and
tagged fields.
"""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from kprod.errors import ProtocolError
from kprod_ext.peer_text import decoded

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ZERO_ID = bytes(16)
_UINT32_MAX = 0xFFFF_FFFF
UNLIMITED = _UINT32_MAX
"""No limit of items in an array, except by the remaining bytes."""


class WireReader:
    """A cursor over one response body. Not thread-safe.

    Every length and count is compared with the remaining bytes before anything is read or
    allocated, so malformed input takes no more memory than its size. ``subject`` names the message
    in errors; ``flexible`` selects the compact encodings. All methods raise ProtocolError, and
    nothing else, for malformed bytes.
    """

    __slots__ = ("_at", "_data", "_end", "_flexible", "_subject")

    def __init__(self, data: memoryview, subject: str, *, flexible: bool) -> None:
        self._data = data
        self._at = 0
        self._end = len(data)
        self._subject = subject
        self._flexible = flexible

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read several fixed-size fields."""
        at = self._advance(layout.size)
        return layout.unpack_from(self._data, at)

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self._data, self._advance(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self._data, self._advance(4))[0]
        return value

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes of unneeded fields."""
        self._advance(size)

    def uuid(self) -> bytes | None:
        """The 16 bytes of an id; all zero means absent."""
        at = self._advance(16)
        raw = bytes(self._data[at : at + 16])
        return None if raw == _ZERO_ID else raw

    def uvarint(self) -> int:
        """An unsigned 32-bit number in at most 5 groups of 7 bits."""
        first = self._data[self._advance(1)]
        return first if first < 0x80 else self._long_uvarint(first)

    def _long_uvarint(self, first: int) -> int:
        value = first & 0x7F
        for shift in range(7, 35, 7):
            byte = self._data[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise self._malformed("a varint of more than 5 bytes")
        if value > _UINT32_MAX:
            raise self._malformed("a varint of more than 32 bits")
        return value

    def string(self) -> str:
        """A name or text for people: printable, and shortened if necessary (``peer_text``)."""
        text = self.nullable_string()
        if text is None:
            raise self._malformed("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        """Like ``string``, but None for null."""
        data = self._string_data()
        if data is None:
            return None
        try:
            return decoded(data)
        except UnicodeDecodeError:
            raise self._malformed("a string that is not UTF-8") from None

    def nullable_raw(self) -> bytes | None:
        """The bytes of a string for programs: complete and unchanged."""
        data = self._string_data()
        return None if data is None else bytes(data)

    def _string_data(self) -> memoryview | None:
        size = self.uvarint() - 1 if self._flexible else self.int16()
        if size == -1:
            return None
        if size < 0:
            raise self._malformed(f"a string of {size} bytes")
        at = self._advance(size)
        return self._data[at : at + size]

    def nullable_bytes(self) -> memoryview:
        """Bytes, as a view of the body; empty for null."""
        size = self.array(1, nullable=True)
        at = self._advance(size)
        return self._data[at : at + size]

    def array(self, smallest_item: int, most: int = UNLIMITED, *, nullable: bool = False) -> int:
        """The number of items that follow, each of at least ``smallest_item`` bytes.

        More than ``most`` are refused. Null counts as 0 if ``nullable``.
        """
        count = self.uvarint() - 1 if self._flexible else self.int32()
        if count == -1 and nullable:
            return 0
        if count < 0:
            raise self._malformed(f"an array of {count} items")
        if count * smallest_item > self._end - self._at:
            raise self._malformed(f"an array of {count} items in {self._end - self._at} bytes")
        if count > most:
            raise self._malformed(f"{count} items where {most} are the most to be expected")
        return count

    def int32s(self) -> Sequence[int]:
        """An array of 32-bit numbers."""
        size = 4 * self.array(4)
        at = self._advance(size)
        numbers = array.array("i", bytes(self._data[at : at + size]))
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers

    def skip_array(self, item_size: int) -> None:
        """Skip an array of fixed-size items."""
        self._advance(self.array(item_size) * item_size)

    def tags(self) -> Iterator[tuple[int, WireReader]]:
        """The tagged fields that end every struct of a flexible version; none otherwise.

        The generator must be exhausted. The caller ignores unknown tags: the cursor moves past each
        field by its stated size, whatever was read of it.
        """
        if not self._flexible:
            return
        previous = -1
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            if tag <= previous:
                raise self._malformed(f"tag {tag} after tag {previous}")
            previous = tag
            yield tag, self._window(self.uvarint())

    def skip_tags(self) -> None:
        """Skip the tagged fields of a struct."""
        # Nearly every section is empty: checking its count first avoids a generator.
        if self._flexible and self._at < self._end and self._data[self._at] == 0:
            self._at += 1
            return
        for _ in self.tags():
            pass

    def rest(self) -> memoryview:
        """The remaining bytes."""
        return self._data[self._at : self._end]

    def _window(self, size: int) -> WireReader:
        at = self._advance(size)
        window = WireReader(self._data, self._subject, flexible=self._flexible)
        window._at, window._end = at, at + size
        return window

    def _advance(self, size: int) -> int:
        """Consume ``size`` bytes; return their start."""
        at = self._at
        if size > self._end - at:
            raise self._malformed(f"{size} bytes wanted, {self._end - at} left,")
        self._at = at + size
        return at

    def _malformed(self, what: str) -> ProtocolError:
        return ProtocolError(f"{self._subject}: {what} at byte {self._at}")


_NO_TAGS = b"\x00"
_LONGEST_STRING = 32_767


class WireWriter:
    """Appends fields to a message. Not thread-safe.

    ``flexible`` selects the compact encodings and the tagged sections. Strings of more than 32,767
    bytes raise ValueError in both encodings: brokers do not accept them.
    """

    __slots__ = ("_flexible", "_out")

    def __init__(self, *, flexible: bool) -> None:
        self._out = bytearray()
        self._flexible = flexible

    def pack(self, layout: struct.Struct, *values: int) -> None:
        """Write several fixed-size fields."""
        self._out += layout.pack(*values)

    def raw(self, data: bytes) -> None:
        """Bytes that are already encoded."""
        self._out += data

    def nullable_string(self, text: str | None) -> None:
        if text is None:
            self._length(-1, _INT16)
        else:
            self.string(text)

    def string(self, text: str) -> None:
        data = text.encode()
        if len(data) > _LONGEST_STRING:
            raise ValueError(f"a string of {len(data)} bytes; at most {_LONGEST_STRING} fit")
        self._length(len(data), _INT16)
        self._out += data

    def array(self, count: int) -> None:
        """The number of items that the caller writes next."""
        self._length(count, _INT32)

    def records(self, size: int) -> None:
        """The size of the record bytes that the caller sends next."""
        self._length(size, _INT32)

    def no_tags(self) -> None:
        """The empty tagged section that ends a struct of a flexible version."""
        if self._flexible:
            self._out += _NO_TAGS

    def take(self) -> bytes:
        """The bytes since the last call."""
        taken = bytes(self._out)
        self._out.clear()
        return taken

    def _length(self, size: int, classic: struct.Struct) -> None:
        """A length, or -1 for null: fixed-size, or one more as a varint so that null is zero."""
        if not self._flexible:
            self._out += classic.pack(size)
            return
        rest = size + 1
        while rest > 0x7F:
            self._out.append((rest & 0x7F) | 0x80)
            rest >>= 7
        self._out.append(rest)
