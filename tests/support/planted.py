"""Plants bugs in kprod's source, to prove that a test detects them."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from textwrap import dedent, indent
from typing import Any, NamedTuple

import pytest

ANNOTATIONS = annotations.compiler_flag


class Edit(NamedTuple):
    """Replaces the ``old`` lines of a function by ``new`` ones; without ``old`` they come first."""

    place: str
    old: list[str]
    new: list[str]


class Bug(NamedTuple):
    """``seed`` detects it. ``swaps``: names and their replacements."""

    name: str
    seed: int
    edits: tuple[Edit, ...] = ()
    swaps: tuple[tuple[str, Any], ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for path, instead in self.swaps:
                patch.setattr(path, instead)
            for place in dict.fromkeys(edit.place for edit in self.edits):
                edits = tuple(edit for edit in self.edits if edit.place == place)
                owner, name, right = _find(place)
                wrong = _changed(owner, right, edits)
                for module in list(sys.modules.values()) if inspect.ismodule(owner) else ():
                    if module.__name__.startswith("kprod") and vars(module).get(name) is right:
                        patch.setattr(module, name, wrong)
                patch.setattr(owner, name, wrong)
            yield


def bugs(text: str) -> tuple[Bug, ...]:
    """Parse bugs, one per paragraph.

    First the name, a bar and the seed. Then for each changed function its dotted name and a diff,
    in which indentation counts only within ``+`` lines; ``...`` separates two changes.
    """
    return tuple(_bug(paragraph.splitlines()) for paragraph in dedent(text).strip().split("\n\n"))


def _bug(lines: list[str]) -> Bug:
    name, _, seed = lines[0].partition(" | ")
    edits: list[Edit] = []
    place, before = "", " "
    for line in lines[1:]:
        kind = line[0]
        if kind not in "+-":
            place = line if line != "..." else place
        else:
            if before not in "+-" or (kind, before) == ("-", "+"):
                edits.append(Edit(place, [], []))
            (edits[-1].new if kind == "+" else edits[-1].old).append(line[2:])
        before = kind
    return Bug(name, int(seed or 0), tuple(edits))


def _find(place: str) -> tuple[Any, str, Any]:
    """Owner, name and value of the attribute."""
    path, _, name = place.rpartition(".")
    try:
        owner: Any = import_module(path)
    except ModuleNotFoundError:
        module, _, kind = path.rpartition(".")
        owner = getattr(import_module(module), kind)
    return owner, name, inspect.getattr_static(owner, name)


@cache
def _source(function: Any) -> str:
    return dedent(inspect.getsource(function))


def _changed(owner: Any, right: Any, edits: tuple[Edit, ...]) -> Any:
    function = getattr(right, "fget", None) or getattr(right, "__func__", right)
    lines = _source(function).splitlines()
    for edit in edits:
        lines = _edited(lines, edit)
    code = "def of(__class__):\n" + indent("\n".join(lines), " ") + f"\n return {function.__name__}"
    made: dict[str, Any] = {}
    exec(compile(code, "planted", "exec", ANNOTATIONS), function.__globals__, made)
    made = made["of"](owner)
    return made


def _edited(lines: list[str], edit: Edit) -> list[str]:
    old = [line.strip() for line in edit.old]
    if not old:
        (function,) = ast.parse("\n".join(lines)).body
        assert isinstance(function, ast.FunctionDef)
        body = function.body
        has_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        first = body[1 if has_docstring and len(body) > 1 else 0].lineno - 1
        return [*lines[:first], *_at(lines[first], edit.new), *lines[first:]]
    found, at = list[str](), 0
    while at < len(lines):
        if [line.strip() for line in lines[at : at + len(old)]] == old:
            found += _at(lines[at], edit.new)
            at += len(old)
        else:
            found.append(lines[at])
            at += 1
    assert found != lines, f"{edit.place} does not have these lines: {old}"
    return found


def _at(line: str, new: list[str]) -> list[str]:
    return [" " * (len(line) - len(line.lstrip())) + one for one in new]
