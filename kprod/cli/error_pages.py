"""The pages of ``kprod errors``, made from ``error_table.toml``."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_WIDTH = 108
_FACTS = {
    "happened": "What happened",
    "record": "The record",
    "kind": "Kind",
    "again": "Tried again",
}


@cache
def error_table() -> Mapping[str, Mapping[str, Any]]:
    """The row of each error number: ``class``, the four facts, ``causes`` and ``do``."""
    text = files("kprod.cli").joinpath("error_table.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def error_title(number: str) -> str:
    """The number and the class name of an error."""
    return f"{number}: {error_table()[number]['class'].rpartition('.')[2]}"


def error_body(number: str) -> str:
    """The page of an error in Markdown: what happened, the record, causes, what to do."""
    row = error_table()[number]
    facts = [f"**{name}**: {row[key]}" for key, name in _FACTS.items()]
    parts = [
        f"`{row['class']}`",
        _bullets(facts),
        f"**Causes**\n\n{_bullets(row['causes'])}",
        f"**What to do**\n\n{_bullets(row['do'])}",
        row.get("notes", "").strip(),
    ]
    return "\n\n".join(filter(None, parts))


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(
        textwrap.fill(
            text,
            _WIDTH,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in texts
    )


def error_pages(wanted: Sequence[str]) -> str:
    """The pages of error numbers (``KP-1303`` or ``1303``) or class names. Without any: a list.

    Raises LookupError for a number or name that has no page.
    """
    titles = {number: error_title(number) for number in error_table()}
    if not wanted:
        return "\n".join(titles.values())
    numbers = {title.partition(": ")[2]: number for number, title in titles.items()}
    found = []
    for name in wanted:
        number = numbers.get(name, f"KP-{name.upper().removeprefix('KP-')}")
        if number not in titles:
            raise LookupError(f"{name!r} is neither the number nor the name of an error of kprod")
        body = _LINK.sub(r"\1", error_body(number))
        found.append(f"# {titles[number]}\n\n{body}")
    return "\n\n".join(found)
