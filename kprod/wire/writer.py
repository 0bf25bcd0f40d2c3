"""Writing Kafka's primitive types.

Source: the Kafka protocol guide, "Protocol Primitive Types"; KIP-482 for the compact forms.
"""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_TAGS = b"\x00"
_LONGEST_STRING = 32_767


class WireWriter:
    """Appends fields to a growing message. Not thread-safe.

    ``flexible`` selects the compact encodings and the tagged sections. Strings of more than 32,767
    bytes raise ValueError, in both encodings: no broker takes them.
    """

    __slots__ = ("_flexible", "_out")

    def __init__(self, *, flexible: bool) -> None:
        self._out = bytearray()
        self._flexible = flexible

    def pack(self, layout: struct.Struct, *values: int) -> None:
        """Several fixed-size fields at once."""
        self._out += layout.pack(*values)

    def raw(self, data: bytes) -> None:
        """Bytes that are encoded already."""
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
        """What was written since the last call."""
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
