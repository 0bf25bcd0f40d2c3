"""Compile the extensions for other machines, by the C compiler of the package ziglang.

Checks whether every extension compiles and links for macOS, for musl and for ARM without a warning,
and whether the C library of each Linux target has every function that the extensions call. It runs
nothing there. Python's headers are this machine's: the types of the targets have the same sizes
(LP64). Leaves shared libraries in ``build/cross/TARGET``.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "build" / "release" / "kprod_ext").glob("*.c"))
MACOS = {"aarch64-macos", "x86_64-macos"}
TARGETS = [*sorted(MACOS), "aarch64-linux-gnu", "x86_64-linux-musl"]
FLAGS = ["-O1", "-g0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
# Clang says more than gcc of what Cython writes for every module, none of it of lines of ours.
FLAGS += ["-Wno-cast-function-type-mismatch", "-Wno-unreachable-code", "-Wno-unused-function"]
LINKED_WHEN_LOADED = ["-Wl,-undefined,dynamic_lookup"]
OF_PYTHON = ("Py", "_Py")


def compile_for(target: str, source: Path) -> str:
    """Compile and link one extension; what the compiler says, nothing when it is content."""
    made = ROOT / "build" / "cross" / target / f"{source.stem}.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    command = [*_compiler(target), *FLAGS]
    command += LINKED_WHEN_LOADED * target.endswith("macos")
    command += ["-I", sysconfig.get_path("include"), "-I", str(ROOT), str(source), "-o", str(made)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{target} {source.name}:\n{ran.stderr}" if ran.returncode else ""


def _compiler(target: str) -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def needed_functions(target: str) -> list[str]:
    """What the extensions for a Linux target need of others than Python.

    A shared library links with functions that no library has; importing it fails then.
    """
    found = set()
    for path in (ROOT / "build" / "cross" / target).glob("*.so"):
        with path.open("rb") as file:
            symbols = ELFFile(file).get_section_by_name(".dynsym")
            assert isinstance(symbols, SymbolTableSection)
            missing = [each for each in symbols.iter_symbols() if each["st_shndx"] == "SHN_UNDEF"]
            found |= {each.name for each in missing if not each.name.startswith(OF_PYTHON)}
    return sorted(found - {""})


def link_program(target: str, functions: list[str]) -> str:
    """Link a program that refers to each; what the linker says, nothing when it finds them all."""
    program = ROOT / "build" / "cross" / target / "functions.c"
    declared = "".join(f"extern char {name}[];\n" for name in functions)
    used = "".join(f"    {name},\n" for name in functions)
    main = "int main(void) { return used[0] == 0; }\n"
    program.write_text(f"{declared}char *volatile used[] = {{\n{used}}};\n{main}")
    command = [*_compiler(target), "-fno-builtin", str(program), "-o", str(program.with_suffix(""))]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def main() -> int:
    """Every extension for every target; 1 when one fails."""
    if not SOURCES:
        raise SystemExit("no C sources: run `make build` first")
    with ThreadPoolExecutor() as pool:
        printed = {target: [*pool.map(partial(compile_for, target), SOURCES)] for target in TARGETS}
    for target, texts in printed.items():
        failed = [text for text in texts if text]
        print("".join(failed), end="", file=sys.stderr)
        linked = len(SOURCES) - len(failed)
        print(f"{target}: {linked} of {len(SOURCES)} extensions compiled and linked")
    failed = any(any(texts) for texts in printed.values())
    for target in printed.keys() - MACOS:
        functions = needed_functions(target)
        missing = link_program(target, functions)
        print(missing, end="", file=sys.stderr)
        failed = failed or bool(missing)
        print(f"{target}: its C library has {'not ' * bool(missing)}all {len(functions)} functions")
    return failed


if __name__ == "__main__":
    sys.exit(main())
