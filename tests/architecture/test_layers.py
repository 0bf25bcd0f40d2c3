"""The layers of docs/architecture.md, as contracts in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT


def test_import_contracts_hold() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    linted = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
