"""Finds the project's source files, and the functions in them, without importing any of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("kprod", "kprod_ext", "tests", "benchmarks")

_CYTHON_HEADER = re.compile(r"\s*(?:async\s+def|def|cdef|cpdef)\b")
_NOT_A_FUNCTION = re.compile(
    r"\s*cdef\s+(?:public\s+|packed\s+)*(?:class|extern|struct|union|enum|cppclass)\b"
)


class Function(NamedTuple):
    """One function: name, first line (1-based), and length with signature and docstring."""

    name: str
    line: int
    length: int


def files(*suffixes: str, folders: tuple[str, ...] = CODE_FOLDERS) -> list[Path]:
    """Every file below ``folders`` that ends in one of ``suffixes``, in a stable order."""
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes
    )


def python_functions(source: str) -> Iterator[Function]:
    """Every function of a Python file, nested ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield Function(node.name, node.lineno, node.end_lineno - node.lineno + 1)


def cython_functions(source: str) -> Iterator[Function]:
    """Every function of a Cython file; a body ends where the indentation falls back."""
    lines = source.splitlines()
    for start, line in enumerate(lines):
        if not _CYTHON_HEADER.match(line) or _NOT_A_FUNCTION.match(line):
            continue
        body = _end_of_header(lines, start)
        if body is not None:
            yield Function(line.strip(), start + 1, _end_of_block(lines, start, body) - start)


def _end_of_header(lines: list[str], start: int) -> int | None:
    """Index after a signature, or None for a declaration: ``cdef int size`` has no colon."""
    depth = 0
    for index in range(start, len(lines)):
        code = lines[index].split("#")[0]
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
        if depth <= 0:
            is_function = code.rstrip().endswith(":") and "(" in "".join(lines[start : index + 1])
            return index + 1 if is_function else None
    return None


def _end_of_block(lines: list[str], start: int, body: int) -> int:
    """Index after the last line of the block that ``lines[start]`` opens."""
    indent = _indent(lines[start])
    end = body
    for index in range(body, len(lines)):
        if not lines[index].strip():
            continue
        if _indent(lines[index]) <= indent:
            break
        end = index + 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
