"""Which modules run compiled: none with ``KPROD_AS_WRITTEN=1``; stale ones are told of.

A module of kprod that has a ``.pxd`` beside it is compiled from its ``.py``, and Python prefers the
compiled file. ``KPROD_AS_WRITTEN=1`` in the environment makes a process load the source instead: to
step through it in a debugger, to measure what it covers, or to change it without compiling. The
extensions of ``kprod_ext`` are always compiled.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

SWITCH = "KPROD_AS_WRITTEN"
ALWAYS_COMPILED = ("kprod_ext",)
PACKAGES = ("kprod", *ALWAYS_COMPILED)


class SourceFinder:
    """Finds the source of the modules of ``kprod`` that are compiled. An importlib finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the module ``fullname`` is written; None for one that is not compiled."""
        if not fullname.startswith("kprod."):
            return None
        from importlib.util import spec_from_file_location

        for folder in path or ():
            source = os.path.join(folder, fullname.rpartition(".")[2])
            if os.path.exists(f"{source}.pxd"):
                return spec_from_file_location(fullname, f"{source}.py")
        return None


def compiled_modules() -> list[str]:
    """The modules of ``kprod`` that this process runs compiled."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [
        name
        for name, file in files.items()
        if name.startswith("kprod.") and file is not None and not file.endswith(".py")
    ]


def stale_modules() -> list[str]:
    """The sources of this checkout that are newer than the compiled module beside them, by path.

    Of modules that are loaded as they are written none is. Empty for an installed kprod, which has
    no ``setup.py`` beside it.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.exists(os.path.join(root, "setup.py")):
        return []
    return sorted(
        os.path.relpath(source, root)
        for package in (PACKAGES if not os.environ.get(SWITCH) else ALWAYS_COMPILED)
        for folder, _, names in os.walk(os.path.join(root, package))
        for source in _newer_than_compiled(folder, names)
    )


def _newer_than_compiled(folder: str, names: list[str]) -> Iterator[str]:
    compiled = {name.partition(".")[0]: name for name in names if name.endswith(".so")}
    for name in names:
        stem, suffix = os.path.splitext(name)
        if stem in compiled and suffix in (".py", ".pyx", ".pxd"):
            source = os.path.join(folder, name)
            if os.path.getmtime(source) > os.path.getmtime(os.path.join(folder, compiled[stem])):
                yield source


if os.environ.get(SWITCH):
    sys.meta_path.insert(0, SourceFinder())
if _stale := stale_modules():
    warnings.warn(
        f"kprod runs modules that were compiled before {', '.join(_stale)} changed: run make build",
        RuntimeWarning,
        stacklevel=2,
    )
