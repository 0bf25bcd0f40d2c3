"""What kprod has installed with it, it imports: a package belongs to the part that needs it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_EXTRAS = ("broker", "cli", "observability", "spark")
"""Parts of kprod with an extra of their own."""


def required(wanted: Iterable[str]) -> set[str]:
    """Names of packages, which the modules they bring have as well."""
    return {re.split(r"[^A-Za-z0-9_-]", each)[0] for each in wanted}


def imported(folder: Path, without: Iterable[str] = ()) -> set[str]:
    """The first part of the name of every module that is imported below ``folder``."""
    passed_over = {folder / name for name in without}
    sources = (p for p in folder.rglob("*.py") if passed_over.isdisjoint(p.parents))
    return {name.partition(".")[0] for source in sources for name in _named(source)}


def compiled_imports(folder: Path) -> set[str]:
    """The same of the Cython modules in ``folder``, without ``cimport``."""
    text = "".join(source.read_text() for source in folder.glob("*.pyx"))
    found = re.findall(r"^ *(?:import|from) (\w+)(.*)$", text, re.MULTILINE)
    return {name for name, rest in found if " cimport " not in rest}


def _named(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def test_a_producer_imports_every_package_that_it_brings() -> None:
    unused = required(PROJECT["dependencies"]) - imported(ROOT / "kprod", OF_EXTRAS)
    unused -= compiled_imports(ROOT / "kprod_ext")
    assert not unused


def test_the_embedded_broker_imports_every_package_that_its_extra_brings() -> None:
    extra = required(PROJECT["optional-dependencies"]["broker"])
    assert not extra - imported(ROOT / "kprod" / "broker")
