"""What pyproject.toml cannot say: which extensions there are, and how they are compiled.

``KPROD_DEBUG=1`` turns bounds checks, line tracing and C assertions on;
``KPROD_SANITIZE=1`` adds the address and undefined-behaviour sanitizers; ``KPROD_PORTABLE=1`` uses
on Linux what every POSIX system has, so that this path is tested here as well;
``KPROD_EXTENSIONS=0`` leaves the extensions to another run, which may go on at the same time.

Warnings are never errors here, because a user's compiler may know more of them than ours. They are
kept beside the object files instead, and ``make lint`` fails when there are any.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

if sys.platform == "win32":
    raise SystemExit(
        "kprod runs on Linux and macOS: it sends and waits through the calls of POSIX systems. On"
        " Windows use it in WSL, or see docs/decisions/0066-one-seam-for-posix.md."
    )

WITH_EXTENSIONS = os.environ.get("KPROD_EXTENSIONS", "1") != "0"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
DEBUG = os.environ.get("KPROD_DEBUG", "0") not in ("", "0")
SANITIZE = os.environ.get("KPROD_SANITIZE", "0") not in ("", "0")
PORTABLE = os.environ.get("KPROD_PORTABLE", "0") not in ("", "0")
MODE = "-".join(
    ["debug" if DEBUG else "release"] + ["sanitize"] * SANITIZE + ["portable"] * PORTABLE
)

# Cython writes functions that ignore arguments the C API makes it take, and type tables whose
# unset tail is meant to be zero: the three warnings switched off fire on that, never on our lines.
C_FLAGS = ["-Wall", "-Wextra"]
C_FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
# Python's own flags ask for debug information: it takes a third of the compiler's time.
C_FLAGS += ["-O0", "-g3", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]
# Against mistakes in C: canaries on the stack, calls whose sizes are checked (by a compiler that
# optimizes; the sanitizers check more), and no table of addresses that could be overwritten.
ELF = sys.platform == "linux"
PROTECTION = ["-fstack-protector-strong"] * ELF
PROTECTION += ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"] * (ELF and not (DEBUG or SANITIZE))
READ_ONLY = ["-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack"] * ELF
SANITIZERS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"] * SANITIZE
MACROS = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] * DEBUG
MACROS += [("KPROD_PORTABLE", "1")] * PORTABLE
MACROS += [("KPROD_POISON", "1")] * (DEBUG or SANITIZE)  # memory nobody owns reads as 0xDD

DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "linetrace": DEBUG,
    "auto_pickle": False,
    "annotation_typing": False,
    # Locks of their own guard what threads share: a Python without a GIL need not turn one on.
    "freethreading_compatible": True,
}

# Without it clang on macOS compiles for the very system it runs on, whatever the wheel's name says.
TARGET = {"MACOSX_DEPLOYMENT_TARGET": sysconfig.get_config_var("MACOSX_DEPLOYMENT_TARGET")}
ENVIRONMENT = {name: str(value) for name, value in TARGET.items() if value} | dict(os.environ)

EXTENSIONS = sorted(Path("kprod_ext").glob("*.pyx"))


def compiled(sources: list[Path]) -> list[Extension]:
    """How ``sources`` become C. One directory for each mode: switching it generates them anew."""
    extensions = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            define_macros=MACROS,
            extra_compile_args=[*C_FLAGS, *PROTECTION, *SANITIZERS],
            extra_link_args=[*READ_ONLY, *SANITIZERS],
        )
        for source in sources
    ]
    made: list[Extension] = cythonize(
        extensions, build_dir=f"build/{MODE}", compiler_directives=DIRECTIVES, nthreads=CORES
    )
    return made


class BuildExtensions(build_ext):
    """Compiles several extensions at a time, and keeps what the compiler says of each."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = CORES

    def run(self) -> None:
        """Compile; in place, also remove what belongs to no source any more: it would be loaded."""
        if self.inplace and self.extensions:
            made = {self.get_ext_fullpath(extension.name) for extension in self.extensions}
            for folder in ("kprod", "kprod_ext"):
                for path in Path(folder).rglob("*.so"):
                    if str(path.absolute()) not in made:
                        path.unlink()
        super().run()

    def build_extensions(self) -> None:
        self.compiler.spawn = self.compiler.call = keep_warnings  # the latter since setuptools 84
        super().build_extensions()


def keep_warnings(command: list[str], **options: object) -> None:
    """Run the compiler or the linker; ``.warnings`` beside its output gets what it says, if any."""
    made = Path(command[command.index("-o") + 1])
    ran = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
    sys.stderr.write(ran.stderr)
    kept = made.with_name(made.name + ".warnings")
    kept.unlink(missing_ok=True)
    if ran.stderr and made.suffix == ".o":
        kept.write_text(ran.stderr)
    if ran.returncode:
        raise CompileError(f"{command[0]} failed with exit code {ran.returncode}")


if __name__ == "__main__":  # not in the processes that translate
    extensions = compiled(EXTENSIONS) if WITH_EXTENSIONS else []
    setup(ext_modules=extensions, cmdclass={"build_ext": BuildExtensions})
