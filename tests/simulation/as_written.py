"""The producer's modules as they are written, whether or not they have been compiled.

A bug can be planted only in classes that may be changed from outside; those of a compiled module
may not. ``KPROD_AS_WRITTEN=1`` in the environment makes a process that imports ``tests.simulation``
before anything of ``kprod`` load the source instead; ``environment`` sets it for processes to come.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

SWITCH = "KPROD_AS_WRITTEN"


class SourceFinder(MetaPathFinder):
    """Finds the source of the modules of ``kprod`` that have types, and are compiled with them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("kprod."):
            return None
        for folder in path or ():
            source = Path(folder, fullname.rpartition(".")[2]).with_suffix(".py")
            if source.with_suffix(".pxd").exists():
                return importlib.util.spec_from_file_location(fullname, source)
        return None


def install_if_asked() -> None:
    """Let this process load the source, if its environment says so. Must be early enough."""
    if not os.environ.get(SWITCH) or any(isinstance(f, SourceFinder) for f in sys.meta_path):
        return
    if any(name.startswith("kprod.") for name in sys.modules):
        raise RuntimeError(f"with {SWITCH}, import tests.simulation before kprod")
    sys.meta_path.insert(0, SourceFinder())


@contextmanager
def environment() -> Iterator[None]:
    """Processes that are started meanwhile load the source."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def compiled_modules() -> list[str]:
    """The modules of ``kprod`` that this process runs compiled."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [
        name
        for name, file in files.items()
        if name.startswith("kprod.") and file is not None and not file.endswith(".py")
    ]
