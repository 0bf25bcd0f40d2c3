"""The pages of errors, as the command prints them: those of ``docs/errors``"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def error_pages(wanted: Sequence[str]) -> str:
    """The pages of numbers (``KP-1303`` or ``1303``) or classes; without any a line for each page.

    Raises LookupError for one that has no page.
    """
    pages = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8")
        for page in files("kprod").joinpath("error_pages").iterdir()
        if page.name.startswith("KP-")
    }
    titles = {number: _title(text) for number, text in sorted(pages.items())}
    if not wanted:
        return "\n".join(titles.values())
    numbers = {title.partition(": ")[2]: number for number, title in titles.items()}
    found = []
    for name in wanted:
        number = numbers.get(name, f"KP-{name.upper().removeprefix('KP-')}")
        if number not in pages:
            raise LookupError(f"{name!r} is neither the number nor the name of an error of kprod")
        found.append(_LINK.sub(r"\1", pages[number].rstrip()))
    return "\n\n".join(found)


def _title(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")
