"""A checkout tells which compiled modules are stale; a process may load the source instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kprod

ROOT = Path(kprod.__file__).parents[1]
LIST = "import kprod.producer; from kprod.compiled_modules import *; print(len(compiled_modules()))"


def python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "KPROD_AS_WRITTEN"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=inherited | {"PYTHONPATH": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages, as compiled as they are, and compiled last.

    Of an installed wheel the files are as old as their turn when it was unpacked.
    """
    for package in ("kprod", "kprod_ext"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for compiled in tmp_path.rglob("*.so"):
        compiled.touch()
    (tmp_path / "setup.py").touch()
    return tmp_path


@pytest.mark.parametrize("source", ["kprod/buffer/delivery.py", "kprod/buffer/delivery.pxd"])
def test_a_checkout_tells_of_a_stale_module(checkout: Path, source: str) -> None:
    assert python("import kprod", checkout).stderr == ""
    newest = max(path.stat().st_mtime for path in checkout.rglob("*.so"))
    os.utime(checkout / source, (newest + 1, newest + 1))
    told = python("import kprod", checkout)
    assert told.returncode == 0
    assert "RuntimeWarning" in told.stderr
    assert source in told.stderr
    assert "make build" in told.stderr


def test_an_installed_package_is_not_looked_at(checkout: Path) -> None:
    os.utime(checkout / "kprod/buffer/delivery.py", (2**33, 2**33))
    (checkout / "setup.py").unlink()
    assert python("import kprod", checkout).stderr == ""


def test_the_source_is_loaded_if_asked_for(checkout: Path) -> None:
    assert int(python(LIST, checkout).stdout) > 1
    os.utime(checkout / "kprod/buffer/delivery.py", (2**33, 2**33))
    written = python(LIST, checkout, KPROD_AS_WRITTEN="1")
    assert (written.stdout, written.stderr) == ("0\n", "")
