"""Output of the commands: text from brokers and records cannot control a terminal."""

from __future__ import annotations

import json
import sys
from typing import IO, Annotated, TypeAlias

import typer

from kprod_ext.peer_text import escaped

Raw: TypeAlias = Annotated[
    bool,
    typer.Option("--raw", help="Do not escape control characters on a terminal."),
]
HARMLESS = "\t\u00a0\u200c\u200d\u202f\u3000"
"""Not printable for Python, but harmless: blanks, and joiners that scripts and emoji need."""


def echo(text: str, *, err: bool = False, raw: bool = False) -> None:
    """Print a line: escaped on a terminal unless ``raw``, unchanged into a pipe or file.

    On standard error it may have several lines: errors quote the names in their text.
    """
    if not raw and is_terminal(sys.stderr if err else sys.stdout):
        text = escaped(text, HARMLESS + "\n" * err)
    typer.echo(text, err=err, color=True)  # color=True: Typer must not strip escape codes


def shown(data: bytes, *, raw: bool) -> bytes:
    """A key or value as ``echo`` would print it. Line breaks are kept, invalid bytes escaped."""
    if raw or not is_terminal(sys.stdout):
        return data
    return escaped(data.decode(errors="backslashreplace"), HARMLESS + "\n").encode()


def json_text(value: object) -> str:
    """JSON in one line, with unprintable characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in HARMLESS else json.dumps(c)[1:-1] for c in text)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether the stream is a terminal; None (a closed stream) is not."""
    return stream is not None and stream.isatty()
