"""Compile the extensions for other machines, by the C compiler of the package ziglang.

Tells whether every extension compiles and links for macOS, for musl and for ARM without a warning.
It runs nothing there. Python's headers are this machine's: the types of the targets have the same
sizes (LP64). Leaves shared libraries in ``build/cross/TARGET``.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "build" / "release" / "kprod_ext").glob("*.c"))
TARGETS = ["aarch64-macos", "x86_64-macos", "aarch64-linux-gnu", "x86_64-linux-musl"]
FLAGS = ["-O1", "-g0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
# Clang says more than gcc of what Cython writes for every module, none of it of lines of ours.
FLAGS += ["-Wno-cast-function-type-mismatch", "-Wno-unreachable-code", "-Wno-unused-function"]
LINKED_WHEN_LOADED = ["-Wl,-undefined,dynamic_lookup"]


def compile_for(target: str, source: Path) -> str:
    """Compile and link one extension; what the compiler says, nothing when it is content."""
    made = ROOT / "build" / "cross" / target / f"{source.stem}.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS]
    command += LINKED_WHEN_LOADED * target.endswith("macos")
    command += ["-I", sysconfig.get_path("include"), "-I", str(ROOT), str(source), "-o", str(made)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{target} {source.name}:\n{ran.stderr}" if ran.returncode else ""


def main() -> int:
    """Every extension for every target; 1 when one fails."""
    if not SOURCES:
        raise SystemExit("no C sources: run `make build` first")
    with ThreadPoolExecutor() as pool:
        told = {target: [*pool.map(partial(compile_for, target), SOURCES)] for target in TARGETS}
    for target, texts in told.items():
        failed = [text for text in texts if text]
        print("".join(failed), end="", file=sys.stderr)
        linked = len(SOURCES) - len(failed)
        print(f"{target}: {linked} of {len(SOURCES)} extensions compiled and linked")
    return any(any(texts) for texts in told.values())


if __name__ == "__main__":
    sys.exit(main())
