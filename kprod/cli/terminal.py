"""Output of the commands, in which text of brokers and records cannot control a terminal."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
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
    """Print a line. On a terminal, it is escaped unless ``raw``; a pipe or file gets it unchanged.

    On standard error, a text may have several lines, because errors already quote the names in
    their text.
    """
    if not raw and is_terminal(sys.stderr if err else sys.stdout):
        text = escaped(text, HARMLESS + "\n" * err)
    try:
        typer.echo(text, err=err, color=True)  # color=True: Typer must not strip escape codes
    except UnicodeEncodeError:  # a path that is not UTF-8
        typer.echo(text.encode(errors="surrogateescape"), err=err)


def complain(text: str) -> None:
    """Print a line on standard error. If it cannot be written, the command continues."""
    with suppress(OSError):
        echo(text, err=True)


def shown(data: bytes, *, raw: bool) -> bytes:
    """A key or value as ``echo`` prints it. Line breaks are kept; invalid bytes are escaped."""
    if raw or not is_terminal(sys.stdout):
        return data
    return escaped(data.decode(errors="backslashreplace"), HARMLESS + "\n").encode()


def json_text(value: object) -> str:
    """JSON in one line. Unprintable characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in HARMLESS else json.dumps(c)[1:-1] for c in text)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether the stream is a terminal. A closed stream (None) is not."""
    return stream is not None and stream.isatty()
