"""Separate Python environments."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_with(name: str, *requirements: str, beside_ours: bool = False) -> Path:
    """The Python of an environment below ``build``, created on first use.

    ``beside_ours``: packages installed here are found too. kprod is on ``PYTHONPATH``.
    """
    folder = ROOT / "build" / "environments" / name
    python, ready = folder / "bin" / "python", folder / "ready"
    wanted = " ".join((sys.executable, *requirements))
    if not ready.exists() or ready.read_text() != wanted:
        run = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, *run], check=True)
        if beside_ours:
            (site,) = folder.glob("lib/python*/site-packages")
            (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
        ready.write_text(wanted)
    return python


def connect_python() -> Path:
    """The Python of Spark's workers where sessions of Spark Connect are made."""
    needed = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.70", "pyyaml>=6")
    return python_with("connect", *needed, beside_ours=True)


def environment(python: Path) -> dict[str, str]:
    own = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    return os.environ | own
