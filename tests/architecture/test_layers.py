"""Imports and exceptions of compiled code, locks, and imported packages."""

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
"""Variables that hold an exception from elsewhere."""
RAISE = re.compile(r"^\s*raise[ \t]+([\w.]+)", re.MULTILINE)


def test_compiled_code_never_imports_kprod() -> None:
    compiled = [path for path in _sources() if path.suffix != ".pyi"]  # stubs may use its types
    assert not [_name(path) for path in compiled if IMPORT.search(path.read_text())]


def test_compiled_code_raises_only_built_in_or_given_exceptions() -> None:
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
SIGNAL = "a signal: one thread acquires it explicitly, another one releases it"
REASONS = {
    "kprod/confluent/credentials.py": SIGNAL,
    "kprod/latch.py": SIGNAL,
    "kprod/sender/loop.py": "acquired and released explicitly, while signals are blocked",
    "kprod/security/http_request.py": "a Timer's Event, used only by its thread and the request's",
    "kprod_ext/buffer_pool.pyx": SIGNAL,
    "kprod_ext/confluent.pyx": SIGNAL,
    "kprod_ext/lock.pyx": "inside the lock itself; compiled code cannot be interrupted there",
}
BROKER = "kprod/broker/"
"""Exempt: an interrupted broker thread affects no producer."""


def _texts() -> dict[str, str]:
    found = files(".py", ".pyx", ".pxd", folders=("kprod", "kprod_ext"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in found}
    return {name: text for name, text in texts.items() if not name.startswith(BROKER)}


def test_each_lock_of_threading_has_a_reason() -> None:
    assert {name for name, text in _texts().items() if MADE.search(text)} == set(REASONS)


def test_no_lock_of_threading_is_imported_under_another_name() -> None:
    assert [name for name, text in _texts().items() if IMPORTED.search(text)] == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_EXTRAS = ("broker", "cli", "observability", "spark")
"""Parts of kprod with their own extra."""
PRODUCER = [
    path
    for path in files(".py", ".pyx", folders=("kprod", "kprod_ext"))
    if path.relative_to(ROOT).parts[1] not in OF_EXTRAS
]


@pytest.mark.parametrize(
    ("dependencies", "sources"),
    [
        (PROJECT["dependencies"], PRODUCER),
        (PROJECT["optional-dependencies"]["broker"], files(".py", folders=("kprod/broker",))),
    ],
    ids=["producer", "broker"],
)
def test_every_dependency_is_imported(dependencies: list[str], sources: list[Path]) -> None:
    text = "\n".join(path.read_text() for path in sources)
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))
    assert not {re.split(r"[^A-Za-z0-9_-]", each)[0] for each in dependencies} - imported
