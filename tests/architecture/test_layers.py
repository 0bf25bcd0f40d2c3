"""The layers of docs/architecture.md, in Python and in compiled code."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
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
