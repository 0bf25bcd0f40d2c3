"""How a refused value is written into an error message: short, and never failing itself."""

from __future__ import annotations

import reprlib

LONGEST = 80
MOST_INT_BITS = 256


class _Shortened(reprlib.Repr):
    """``reprlib`` survives a ``__repr__`` that raises; this adds what would be slow to write."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= MOST_INT_BITS else "<a huge integer>"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= LONGEST else f"{x[:LONGEST]!r}... ({len(x)} bytes)"

    def repr_bytearray(self, x: bytearray, level: int) -> str:
        return f"bytearray({self.repr_bytes(bytes(x[: LONGEST + 1]), level)})"


_shortened = _Shortened()


def safe_repr(value: object) -> str:
    """The value and its type, at most about a line: ``'5' (str)``, ``None``."""
    if value is None:
        return "None"
    return f"{_shortened.repr(value)} ({type(value).__name__})"
