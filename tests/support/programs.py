"""Runs Python programs in their own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ACTIVATED = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
"""As in an activated environment: Spark finds its workers' python3 on the path."""


def run_python(
    *arguments: str,
    check: bool = True,
    seconds: float = 300.0,
    cwd: Path = ROOT,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Python in the checkout; ``check``: it must exit with 0."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert not check or ran.returncode == 0, ran.stdout + ran.stderr
    return ran
