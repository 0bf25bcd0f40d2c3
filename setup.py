"""What pyproject.toml cannot say: which extensions there are, and how they are compiled.

``KPROD_DEBUG=1`` turns bounds checks, line tracing and C assertions on;
``KPROD_SANITIZE=1`` adds the address and undefined-behaviour sanitizers; ``KPROD_PORTABLE=1`` uses
on Linux what every POSIX system has, so that this path is tested here as well;
``KPROD_EXTENSIONS=0`` leaves the extensions to another run, which may go on at the same time;
``KPROD_WERROR=1`` makes errors of the compiler's warnings, for ``make lint``: a user's compiler may
know more of them than ours. ``KPROD_REPOSITORY`` and ``KPROD_REVISION`` are where the source is,
for the page of a package index.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

if sys.platform == "win32":
    raise SystemExit(
        "kprod runs on Linux and macOS: it sends and waits through the calls of POSIX systems. On"
        " Windows use it in WSL, or see docs/decisions/languages-and-build.md."
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
C_FLAGS += ["-Werror"] if os.environ.get("KPROD_WERROR", "0") not in ("", "0") else []
C_FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
# Python's own flags ask for debug information: it takes a third of the compiler's time.
C_FLAGS += ["-O0", "-g3", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]
# Against mistakes in C: canaries on the stack, and no table of addresses that could be changed.
# Not _FORTIFY_SOURCE: it checks no call here, as records are copied through plain pointers.
ELF = sys.platform == "linux"
PROTECTION = ["-fstack-protector-strong"] * ELF
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
if target := sysconfig.get_config_var("MACOSX_DEPLOYMENT_TARGET"):
    os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", str(target))

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


def with_absolute_links(readme: str, repository: str, revision: str) -> str:
    """The text for a page that is not in the repository: files by ``blob``, pictures by ``raw``."""

    def absolute(link: re.Match[str]) -> str:
        way = "raw" if link[1].endswith(".svg") else "blob"
        return f"]({repository}/{way}/{revision}/{link[1]})"

    return re.sub(r"\]\((?![a-z]+:|#)([^()\s]+)\)", absolute, readme)


def described() -> dict[str, Any]:
    """README.md and the addresses of the project. Without ``KPROD_REPOSITORY`` there are none."""
    readme = Path("README.md").read_text("utf-8")
    repository = os.environ.get("KPROD_REPOSITORY", "")
    if not repository:
        return {"long_description": readme, "long_description_content_type": "text/markdown"}
    revision = os.environ.get("KPROD_REVISION", "HEAD")
    return {
        "long_description": with_absolute_links(readme, repository, revision),
        "long_description_content_type": "text/markdown",
        "project_urls": {
            "Source": repository,
            "Documentation": f"{repository}/blob/{revision}/docs/index.md",
            "Changelog": f"{repository}/blob/{revision}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        },
    }


class BuildExtensions(build_ext):
    """Compiles several extensions at a time."""

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


if __name__ == "__main__":  # not in the processes that translate
    extensions = compiled(EXTENSIONS) if WITH_EXTENSIONS else []
    setup(ext_modules=extensions, cmdclass={"build_ext": BuildExtensions}, **described())
