"""Checks, in a checkout, that no extension is missing or older than its source."""

from __future__ import annotations

import importlib.machinery
import warnings
from collections.abc import Iterator
from pathlib import Path

SOURCES = (".pyx", ".pxd")


def _checkout() -> Path | None:
    """The root of this checkout; None if kprod is installed, because there is no ``setup.py``."""
    root = Path(__file__).resolve().parents[1]
    return root if (root / "setup.py").exists() else None


def missing_extensions() -> list[str]:
    """The paths of the sources in this checkout that are not compiled for this Python."""
    root = _checkout()
    if root is None:
        return []
    return [
        str(source.relative_to(root))
        for source in sorted((root / "kprod_ext").glob("*.pyx"))
        if not any(
            source.with_name(source.stem + suffix).exists()
            for suffix in importlib.machinery.EXTENSION_SUFFIXES
        )
    ]


def stale_extensions() -> list[str]:
    """The paths of the sources in this checkout that are newer than their compiled extension."""
    root = _checkout()
    if root is None:
        return []
    return sorted(str(source.relative_to(root)) for source in _stale(root / "kprod_ext"))


def _stale(folder: Path) -> Iterator[Path]:
    for extension in folder.glob("*.so"):
        compiled = extension.stat().st_mtime
        for suffix in SOURCES:
            source = folder / (extension.name.partition(".")[0] + suffix)
            if source.exists() and source.stat().st_mtime > compiled:
                yield source


if _missing := missing_extensions():
    raise ImportError(
        f"{_checkout()} is the source of kprod, and {_missing[0]} is not compiled for this Python"
        " there. To use an installed kprod, start Python in another folder; to use this one, run"
        " make build in it"
    )
if _found := stale_extensions():
    warnings.warn(
        f"kprod runs extensions that were compiled before {', '.join(_found)} changed:"
        " run make build",
        RuntimeWarning,
        stacklevel=2,
    )
