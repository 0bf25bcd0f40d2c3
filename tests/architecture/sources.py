"""Finds the project's source files without importing any of them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("kprod", "kprod_ext", "tests", "benchmarks")


def files(*suffixes: str, folders: tuple[str, ...] = CODE_FOLDERS) -> list[Path]:
    """All files below ``folders`` with one of these suffixes, sorted."""
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes
    )
