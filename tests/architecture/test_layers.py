"""What compiled code may import, the locks of the code, and the packages that it imports."""

from __future__ import annotations

import builtins
import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files

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
PRODUCER = [
    path
    for path in files(".py", ".pyx", folders=("kprod", "kprod_ext"))
    if path.relative_to(ROOT).parts[1] not in OF_EXTRAS
]


@pytest.mark.parametrize(
    ("brought", "sources"),
    [
        (PROJECT["dependencies"], PRODUCER),
        (PROJECT["optional-dependencies"]["broker"], files(".py", folders=("kprod/broker",))),
    ],
    ids=["producer", "broker"],
)
def test_every_package_that_is_brought_is_imported(brought: list[str], sources: list[Path]) -> None:
    text = "\n".join(path.read_text() for path in sources)
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))
    assert not {re.split(r"[^A-Za-z0-9_-]", each)[0] for each in brought} - imported
