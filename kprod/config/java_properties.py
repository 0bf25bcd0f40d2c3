"""Files in Java's properties format."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|[\r\n]")
_BLANKS = " \t\f"
_ENDS_OPEN = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
"""An odd number of backslashes at the end: the next line continues this one."""
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|\Z)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def java_properties(text: str) -> dict[str, str]:
    """Names and values of a properties file, as ``java.util.Properties.load`` reads it.

    If a name occurs twice, the last value wins. Raises ValueError for ``\\u`` without four
    hexadecimal digits; the message contains nothing from the file.
    """
    pairs = (_PAIR.fullmatch(line) for line in _logical_lines(text))
    return {_plain(pair[1]): _plain(pair[2]) for pair in pairs if pair is not None}


def _logical_lines(text: str) -> Iterator[str]:
    """The lines without comments, with continuation lines joined."""
    joined: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if joined is None and (not line or line[0] in "#!"):
            continue
        joined = (joined or "") + line
        if _ENDS_OPEN.search(joined):
            joined = joined[:-1]
        else:
            yield joined
            joined = None
    if joined:
        yield joined


def _plain(text: str) -> str:
    """The text with escapes replaced; UTF-16 surrogate pairs become one character."""
    unescaped = _ESCAPE.sub(_unescaped, text)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code, letter = match.groups()
    if code is not None:
        return chr(int(code, 16))
    if letter == "u":
        raise ValueError("\\u without four hexadecimal digits")
    return _LETTERS.get(letter, letter or "")
