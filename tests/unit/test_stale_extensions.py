"""A checkout tells which extensions are older than their source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages, as compiled as they are, and compiled last.

    An installed wheel has no sources, and its files are as old as their turn when it was unpacked.
    """
    for package in ("kprod", "kprod_ext"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for compiled in tmp_path.rglob("*.so"):
        compiled.with_name(f"{compiled.name.partition('.')[0]}.pyx").touch()
        compiled.touch()
    (tmp_path / "setup.py").touch()
    return tmp_path


def test_a_checkout_tells_of_a_stale_extension(checkout: Path) -> None:
    source = "kprod_ext/futures.pxd"
    assert imported(checkout).stderr == ""
    newest = max(path.stat().st_mtime for path in checkout.rglob("*.so"))
    (checkout / source).touch()
    os.utime(checkout / source, (newest + 1, newest + 1))
    told = imported(checkout)
    assert told.returncode == 0
    for said in ("RuntimeWarning", source, "make build"):
        assert said in told.stderr


def test_a_checkout_that_is_not_compiled_says_what_to_do(checkout: Path) -> None:
    for compiled in checkout.rglob("*.so"):
        compiled.rename(compiled.with_name(f"{compiled.name.partition('.')[0]}.cpython-30-x.so"))
    told = imported(checkout).stderr
    for said in (f"ImportError: {checkout} is the source", "start Python in another", "make build"):
        assert said in told


def test_an_installed_package_is_not_looked_at(checkout: Path) -> None:
    (checkout / "kprod_ext/futures.pyx").touch()
    os.utime(checkout / "kprod_ext/futures.pyx", (2**33, 2**33))
    (checkout / "setup.py").unlink()
    assert imported(checkout).stderr == ""
