"""A checkout tells which extensions are older than their source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kprod

ROOT = Path(kprod.__file__).parents[1]


def imported(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import kprod"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def copied_to(folder: Path) -> None:
    """The packages, as compiled as they are, and compiled last.

    An installed wheel has no sources, and its files are as old as their turn when it was unpacked.
    """
    for package in ("kprod", "kprod_ext"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for compiled in folder.rglob("*.so"):
        compiled.with_name(f"{compiled.name.partition('.')[0]}.pyx").touch()
        compiled.touch()
    (folder / "setup.py").touch()


def test_a_checkout_tells_of_extensions_that_are_stale_or_missing(tmp_path: Path) -> None:
    copied_to(tmp_path)
    assert imported(tmp_path).stderr == ""
    source = "kprod_ext/futures.pxd"
    os.utime(tmp_path / source, (2**33, 2**33))
    told = imported(tmp_path)
    assert told.returncode == 0
    for said in ("RuntimeWarning", source, "make build"):
        assert said in told.stderr

    (tmp_path / "setup.py").unlink()
    assert imported(tmp_path).stderr == "", "it is an installed package"

    (tmp_path / "setup.py").touch()
    for compiled in tmp_path.rglob("*.so"):
        compiled.rename(compiled.with_name(f"{compiled.name.partition('.')[0]}.cpython-30-x.so"))
    refused = imported(tmp_path).stderr
    for said in (f"ImportError: {tmp_path} is the source", "start Python in another", "make build"):
        assert said in refused
