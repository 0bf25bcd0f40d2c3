"""No list is compiled in the way that lets go of an item twice when memory runs out.

A list comprehension whose items are made on the spot, and what Cython turns into one: a generator
in ``list``, ``tuple``, ``sorted`` or ``join``, and a display with a star (decision 0016). An item
that a variable holds is safe.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files

GATHERING = {"list", "tuple", "sorted", "join"}
OPENED = re.compile(r"\[|\b(?:list|tuple|sorted|join)\(")
LOOP = re.compile(r"\sfor\s+([\w\W]*?)\s+in\s")


def test_no_compiled_module_makes_items_within_a_list() -> None:
    modules = [path.with_suffix(".py") for path in files(".pxd", folders=("kprod",))]
    assert len(modules) > 3
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules
        for line in made_within(path.read_text())
    ]
    assert not found, "write a loop"


def test_no_extension_makes_items_within_a_list() -> None:
    extensions = files(".pyx", ".pxd", folders=("kprod_ext", "kprod"))
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in extensions
        for line in made_within_cython(path)
    ]
    assert not found, "write a loop"


def made_within(source: str) -> Iterator[int]:
    """The lines of a Python module in which a list is made of items made on the spot."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ListComp):
            items, bound = [node.elt], _bound(node.generators)
        elif isinstance(node, ast.Call) and _gathers(node):
            generator = node.args[0]
            assert isinstance(generator, ast.GeneratorExp)
            items, bound = [generator.elt], _bound(generator.generators)
        elif isinstance(node, ast.List | ast.Tuple) and _has_star(node):
            items, bound = [e for e in node.elts if not isinstance(e, ast.Starred)], None
        else:
            continue
        if not all(_is_variable(item, bound) for item in items):
            yield node.lineno


def _gathers(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in GATHERING and len(call.args) > 0 and isinstance(call.args[0], ast.GeneratorExp)


def _has_star(node: ast.List | ast.Tuple) -> bool:
    """What comes before the first star is part of the list that the rest is added to."""
    stars = [isinstance(e, ast.Starred) for e in node.elts]
    return True in stars and not all(stars[stars.index(True) :])


def _bound(generators: list[ast.comprehension]) -> set[str]:
    return {n.id for g in generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}


def _is_variable(item: ast.expr, bound: set[str] | None) -> bool:
    if isinstance(item, ast.Constant):
        return True
    return isinstance(item, ast.Name) and (bound is None or item.id in bound)


def made_within_cython(path: Path) -> Iterator[int]:
    """As ``made_within``, of a file that only Cython can parse: by its looks."""
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
    assert list(made_within(f"a = 1\nb = {made}")) == [2]
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
    assert not list(made_within(f"a = {held}"))
    assert not list(made_within("a = (*b, c)\nd = [*a, *f(c)]\ne = [f(c), *a]"))
    assert list(made_within("a = (*b, f(c))")) == [1]
    written = tmp_path / "a.pyx"
    written.write_text(f"a = {held}")
    assert not list(made_within_cython(written))
