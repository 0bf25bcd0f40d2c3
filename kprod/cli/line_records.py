"""Lines of text as records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class LineRecord(NamedTuple):
    """One line: its number from 1, and what it says. ``key`` None: the line names none."""

    number: int
    key: bytes | None
    value: bytes


class NoKeyError(ValueError):
    """A line without the separator that every line should have."""


def read_lines(
    lines: Iterable[bytes], key_separator: bytes | None
) -> Iterator[LineRecord | NoKeyError]:
    """Each line as a record, or what is wrong with it. Line ends (LF, CRLF) are no part of a value.

    The key is what stands before the first separator.
    """
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if key_separator is None:
            yield LineRecord(number, None, text)
            continue
        key, separator, value = text.partition(key_separator)
        if separator:
            yield LineRecord(number, key, value)
        else:
            yield NoKeyError(
                f"line {number}: no key: {key_separator.decode()!r} is not in the line"
            )
