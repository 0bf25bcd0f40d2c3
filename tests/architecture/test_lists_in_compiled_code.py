"""No list is compiled in the way that lets go of an item twice when memory runs out.

A list comprehension whose items are made on the spot, and what Cython turns into one: a generator
in ``list``, ``tuple``, ``sorted`` or ``join``. An item that a variable holds is safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files

OPENED = re.compile(r"\[|\b(?:list|tuple|sorted|join)\(")
LOOP = re.compile(r"\sfor\s+([\w\W]*?)\s+in\s")


def test_no_extension_makes_items_within_a_list() -> None:
    extensions = files(".pyx", ".pxd", folders=("kprod_ext",))
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in extensions
        for line in made_within_cython(path)
    ]
    assert not found, "write a loop"


def made_within_cython(path: Path) -> Iterator[int]:
    """The lines in which a list is made of items made on the spot; by their looks."""
    text = re.sub(r'"""[\w\W]*?"""|"[^"\n]*"|#.*', _blank, path.read_text())
    for opened in OPENED.finditer(text):
        item, *loops = LOOP.split(_outermost(text[opened.end() :]))
        if loops and item.strip() not in re.findall(r"\w+", " ".join(loops[::2])):
            yield text.count("\n", 0, opened.start()) + 1


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _outermost(text: str) -> str:
    """What is between two brackets, of which the first is just before; without others in it."""
    depth, found = 1, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return found
        found += character if depth == 1 else ""
    return found


@pytest.mark.parametrize(
    "made",
    [
        "[f(x) for x in y]",
        "[x.a for x in y]",
        "[(x, 1) for x in y]",
        "[other for x in y]",
        "tuple(f(x) for x in y)",
        "''.join(x if x else '?' for x in y)",
    ],
)
def test_items_made_on_the_spot_are_seen(made: str, tmp_path: Path) -> None:
    written = tmp_path / "a.pyx"
    written.write_text(f"cdef int a = 1\nb = {made}")
    assert list(made_within_cython(written)) == [2]


@pytest.mark.parametrize(
    "held",
    [
        "[x for x in y if f(x)]",
        "[x for w in v for x in w]",
        "tuple(x for x in y)",
        "sum(f(x) for x in y)",
        "y[f(1)]",
        "[f(1), f(2)]",
    ],
)
def test_items_that_a_variable_holds_are_not(held: str, tmp_path: Path) -> None:
    written = tmp_path / "a.pyx"
    written.write_text(f"a = {held}")
    assert not list(made_within_cython(written))
