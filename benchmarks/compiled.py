"""The C of the benchmarks, compiled when it is first used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

BUILT = Path(__file__).parents[1] / "build" / "benchmarks"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def compiled(source: Path, *more: str) -> Path:
    """The shared library made from a C file, newer than it; ``more`` are flags.

    Ends the program when there is no C compiler; kprod itself could not have been built then.
    """
    kind = "".join(flag for flag in more if flag.startswith("-D")).replace("-D", "-").lower()
    library = BUILT / f"{source.stem}{kind}.so"
    if library.exists() and library.stat().st_mtime >= source.stat().st_mtime:
        return library
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("the benchmarks need a C compiler on the path, or named by CC")
    BUILT.mkdir(parents=True, exist_ok=True)
    fresh = library.with_suffix(f".{os.getpid()}")  # two may compile at once; renaming is atomic
    subprocess.run([compiler, *FLAGS, "-o", str(fresh), str(source), *more], check=True)
    fresh.replace(library)
    return library
