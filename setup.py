"""What pyproject.toml cannot say: which extensions there are, and how they are compiled.

``KPROD_DEBUG=1`` turns bounds checks, line tracing and C assertions on;
``KPROD_SANITIZE=1`` adds the address and undefined-behaviour sanitizers. Warnings are never errors
here, because a user's compiler may know more of them than ours: ``make lint`` adds ``-Werror``.
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("KPROD_DEBUG", "0") not in ("", "0")
SANITIZE = os.environ.get("KPROD_SANITIZE", "0") not in ("", "0")
MODE = "-".join(["debug" if DEBUG else "release"] + ["sanitize"] * SANITIZE)

# Cython writes functions that ignore arguments the C API makes it take, and type tables whose
# unset tail is meant to be zero: the three warnings switched off fire on that, never on our lines.
C_FLAGS = ["-Wall", "-Wextra"]
C_FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
C_FLAGS += ["-O0", "-g3", "-UNDEBUG"] if DEBUG else ["-O3"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"] * SANITIZE
MACROS = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] * DEBUG
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

# A module of kprod that has a .pxd beside it is compiled, too: the .pxd tells the types of what the
# module's classes hold, and the module stays Python that runs as it is. So an index means there
# what it means in Python: -1 is the last one, beyond the end is an IndexError, and None has no
# attributes.
LEAVES = sorted(Path("kprod_ext").glob("*.pyx"))
TYPED = sorted(types.with_suffix(".py") for types in Path("kprod").rglob("*.pxd"))
AS_IN_PYTHON = {"boundscheck": True, "wraparound": True, "nonecheck": True}


def compiled(sources: list[Path], directives: dict[str, object]) -> list[Extension]:
    """How ``sources`` become C. One directory for each mode: switching it generates them anew."""
    extensions = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            define_macros=MACROS,
            extra_compile_args=[*C_FLAGS, *SANITIZERS],
            extra_link_args=SANITIZERS,
        )
        for source in sources
    ]
    made: list[Extension] = cythonize(
        extensions, build_dir=f"build/{MODE}", compiler_directives=directives
    )
    return made


setup(
    ext_modules=compiled(LEAVES, DIRECTIVES) + compiled(TYPED, DIRECTIVES | AS_IN_PYTHON),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
