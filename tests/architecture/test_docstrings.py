"""Everything a user can import and call says what it does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

import kprod
import kprod_ext
from tests.architecture.sources import ROOT, files


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files(".py", folders=("kprod", "kprod_ext"))
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


@pytest.mark.parametrize("package", [kprod, kprod_ext])
def test_every_public_name_has_a_docstring(package: ModuleType) -> None:
    assert not [name for name, found in _public_api(package) if not inspect.getdoc(found)]


def _public_api(package: ModuleType) -> Iterator[tuple[str, object]]:
    """The classes and functions in ``__all__``, and the classes' public methods."""
    for name in package.__all__:
        found = getattr(package, name)
        if inspect.isclass(found):
            yield from _members(found)
        if inspect.isclass(found) or inspect.isroutine(found):
            yield name, found


def _members(cls: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(cls).items():
        described = inspect.isroutine(member) or isinstance(member, property)
        if described and not name.startswith("_"):
            yield f"{cls.__name__}.{name}", member
