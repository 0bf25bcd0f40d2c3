"""How many instructions does each compiled operation take?

    python -m benchmarks.kernels.instructions

Times depend on what else the machine does; instructions do not, so a few percent more of them mean
something. Valgrind's callgrind counts them, in one run of about a minute: the profile is written
down before and after each kernel, and the difference is the kernel's. Stored in
``results/instructions.json``. Without valgrind it says so, and does nothing.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.kernels.kernels import kernels
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result

ROOT = Path(__file__).parents[2]
MARK = "getpriority"
"""A function of the C library that nothing calls but us: callgrind writes down when it is."""

INSIDE = "--inside"
TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
MOST_SECONDS = 300.0


def main() -> int:
    """Count, or be what is counted; the exit code."""
    if INSIDE in sys.argv:
        _work_between_marks()
        return 0
    if shutil.which("valgrind") is None:
        print("instructions are not counted: there is no valgrind on the path")
        return 0
    origin = provenance()
    counted = count_instructions()
    file = write_result(
        "instructions",
        question=(__doc__ or "").splitlines()[0],
        command=command_line("benchmarks.kernels.instructions"),
        origin=origin,
        settings={"tool": _version(), "collector": "off", "hash seed": 0},
        figures={"instructions_per_operation": counted},
    )
    for name, instructions in counted.items():
        print(f"{name:32} {instructions:12,.1f}")
    print(f"Stored in {os.path.relpath(file)}")
    return 0


def count_instructions() -> dict[str, float]:
    """Instructions per operation by kernel, the loop around it included. Needs valgrind."""
    with tempfile.TemporaryDirectory(prefix="kprod-") as folder:
        profile = Path(folder) / "profile"
        command = ["valgrind", "--tool=callgrind", f"--dump-before={MARK}", "--quiet"]
        command += [f"--callgrind-out-file={profile}", sys.executable]
        command += ["-m", "benchmarks.kernels.instructions", INSIDE]
        subprocess.run(
            command,
            cwd=ROOT,
            check=True,
            timeout=MOST_SECONDS,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        all_kernels = list(kernels())
        # Dump 1 ends where the first kernel begins, dump 2 where it ends, dump 3 is between two.
        dumps = [profile.with_name(f"profile.{2 * n}") for n in range(1, len(all_kernels) + 1)]
        pairs = zip(all_kernels, map(_total, dumps), strict=True)
        return {kernel.name: round(total / kernel.operations, 1) for kernel, total in pairs}


def _total(dump: Path) -> int:
    found = TOTAL.search(dump.read_text())
    if found is None:
        raise RuntimeError(f"no total in {dump.name}: this callgrind writes something else")
    return int(found[1])


def _work_between_marks() -> None:
    gc.disable()
    for kernel in kernels():
        kernel.prepare()()
        work = kernel.prepare()
        os.getpriority(os.PRIO_PROCESS, 0)
        work()
        os.getpriority(os.PRIO_PROCESS, 0)


def _version() -> str:
    ran = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
