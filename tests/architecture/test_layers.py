"""The layers of docs/architecture.md, the locks of the code, and the packages that it imports."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, files


def test_import_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    linted = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr


IMPORT = re.compile(
    r"^\s*(?:c?import\s+kprod\b(?!_)|from\s+kprod(?:\.[\w.]*)?\s+c?import)", re.MULTILINE
)
VARIABLES = {"failure"}
"""Hold exceptions that others have made."""
RAISE = re.compile(r"^\s*raise[ \t]+([\w.]+)", re.MULTILINE)


def test_compiled_code_never_imports_kprod() -> None:
    compiled = [path for path in _sources() if path.suffix != ".pyi"]  # which may name its types
    assert not [_name(path) for path in compiled if IMPORT.search(path.read_text())]


def test_compiled_code_raises_only_built_in_exceptions_and_what_it_was_given() -> None:
    foreign = [
        f"{_name(path)}: {raised}"
        for path in _sources()
        for raised in RAISE.findall(path.read_text())
        if not (_is_built_in(raised) or raised in VARIABLES)
    ]
    assert not foreign


def _is_built_in(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def _sources() -> list[Path]:
    return files(".pyx", ".pxd", ".pyi", ".py", folders=("kprod_ext",))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


MADE = re.compile(r"\bthreading\.(?:R?Lock|Event|Condition|(?:Bounded)?Semaphore|Barrier|Timer)\(")
IMPORTED = re.compile(r"\b(?:from threading c?import|import threading as)\b")
BELL = "a bell: one thread takes it by name, another one releases it by name"
REASONS = {
    "kprod/confluent/credentials.py": BELL,
    "kprod/latch.py": BELL,
    "kprod/sender/loop.py": "taken and released by name, while signals are held",
    "kprod/security/http_request.py": "a Timer's Event: for the request's thread and its own only",
    "kprod_ext/buffer_pool.pyx": BELL,
    "kprod_ext/confluent.pyx": BELL,
    "kprod_ext/lock.pyx": "inside the lock itself; compiled code enters and leaves it in one step",
}
BROKER = "kprod/broker/"
"""Its threads are its own: what breaks off there costs a test its broker, no producer a record."""


def _texts() -> dict[str, str]:
    found = files(".py", ".pyx", ".pxd", folders=("kprod", "kprod_ext"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in found}
    return {name: text for name, text in texts.items() if not name.startswith(BROKER)}


def test_each_lock_of_threading_has_a_reason() -> None:
    assert {name for name, text in _texts().items() if MADE.search(text)} == set(REASONS)


def test_no_lock_of_threading_goes_by_another_name() -> None:
    assert [name for name, text in _texts().items() if IMPORTED.search(text)] == []


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
