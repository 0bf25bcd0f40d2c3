"""Importing a source checkout warns of extensions older than their source."""

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


def copy_packages(folder: Path) -> None:
    """Copy the packages, with extensions newer than all sources.

    An installed wheel has no sources, and its files get the time at which they were unpacked.
    """
    for package in ("kprod", "kprod_ext"):
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for compiled in folder.rglob("*.so"):
        compiled.with_name(f"{compiled.name.partition('.')[0]}.pyx").touch()
        compiled.touch()
    (folder / "setup.py").touch()


def test_stale_extensions_are_warned_of_and_missing_ones_are_an_error(tmp_path: Path) -> None:
    copy_packages(tmp_path)
    assert imported(tmp_path).stderr == ""
    source = "kprod_ext/futures.pxd"
    os.utime(tmp_path / source, (2**33, 2**33))
    stale = imported(tmp_path)
    assert stale.returncode == 0
    for text in ("RuntimeWarning", source, "make build"):
        assert text in stale.stderr

    (tmp_path / "setup.py").unlink()
    assert imported(tmp_path).stderr == "", "it is an installed package"

    (tmp_path / "setup.py").touch()
    for compiled in tmp_path.rglob("*.so"):
        compiled.rename(compiled.with_name(f"{compiled.name.partition('.')[0]}.cpython-30-x.so"))
    refused = imported(tmp_path).stderr
    for text in (f"ImportError: {tmp_path} is the source", "start Python in another", "make build"):
        assert text in refused
