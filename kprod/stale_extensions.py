"""Tells, in a checkout, which extensions were compiled before their source changed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

SOURCES = (".pyx", ".pxd")


def stale_extensions() -> list[str]:
    """The sources of this checkout that are newer than the extension beside them, by path.

    Empty for an installed kprod, which has no ``setup.py`` beside it.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / "setup.py").exists():
        return []
    return sorted(str(source.relative_to(root)) for source in _stale(root / "kprod_ext"))


def _stale(folder: Path) -> Iterator[Path]:
    for extension in folder.glob("*.so"):
        compiled = extension.stat().st_mtime
        for suffix in SOURCES:
            source = folder / (extension.name.partition(".")[0] + suffix)
            if source.exists() and source.stat().st_mtime > compiled:
                yield source


if _found := stale_extensions():
    warnings.warn(
        f"kprod runs extensions that were compiled before {', '.join(_found)} changed:"
        " run make build",
        RuntimeWarning,
        stacklevel=2,
    )
