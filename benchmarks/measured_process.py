"""One process that is measured: nothing else in it, a limit of time, and figures on its output."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 180.0
LAST_WORDS = 400
QUIET = {"OPENBLAS_NUM_THREADS": "1"}
"""pyarrow loads numpy, whose threads would spin for a while on the cores that are measured."""


class TurnFailed(Exception):
    """A measurement that has no figures, and why."""


def figures_of(command: list[str], folder: Path = ROOT, seconds: float = SECONDS) -> dict[str, Any]:
    """Run ``command`` in ``folder``; the JSON object on its last line of output.

    Raises TurnFailed when it fails, has no end after ``seconds``, or prints something else.
    """
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=os.environ | QUIET,
        )
    except subprocess.TimeoutExpired:
        raise TurnFailed(f"no end after {seconds:.0f} s") from None
    if ran.returncode:
        raise TurnFailed(ran.stderr.strip()[-LAST_WORDS:] or f"exit code {ran.returncode}")
    try:
        figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise TurnFailed(f"no figures in {ran.stdout[-LAST_WORDS:]!r}") from None
    return figures
