"""Files and functions stay small enough to be read in one go."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.sources import ROOT, Function, cython_functions, files, python_functions

MOST_LINES_PER_FILE = {".py": 500, ".pyi": 500, ".pyx": 800, ".pxd": 800}
MOST_LINES_PER_FUNCTION = 60


def test_no_file_is_too_long() -> None:
    lengths = {path: _lines(path) for path in files(*MOST_LINES_PER_FILE)}
    too_long = {_name(p): n for p, n in lengths.items() if n > MOST_LINES_PER_FILE[p.suffix]}
    assert not too_long


def test_no_function_is_longer_than_60_lines() -> None:
    too_long = [
        f"{_name(path)}:{function.line} {function.name}: {function.length} lines"
        for path in files(".py", ".pyx", ".pxd")
        for function in _functions(path)
        if function.length > MOST_LINES_PER_FUNCTION
    ]
    assert not too_long


def _functions(path: Path) -> list[Function]:
    find = python_functions if path.suffix == ".py" else cython_functions
    return list(find(path.read_text()))


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
