"""What Maven fetches once and keeps below ``build/``, and tests that cannot be without it."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

BUILD = Path(__file__).parents[2] / "build"
SECONDS = 280
LINES_TOLD = 20


@functools.cache
def fetched(folder: Path, what: str, *goal: str) -> str | None:
    """Let the goal of Maven fill the folder, if it is not there; the reason when it still is not.

    What a fetch that was stopped leaves half filled does not count.
    """
    if shutil.which("java") is None:
        return f"{what} needs Java 17 or newer, and there is no java on PATH"
    if folder.is_dir():
        return None
    if shutil.which("mvn") is None:
        return f"{what} comes by Maven, and there is no mvn on PATH"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching it
        return None if folder.is_dir() else _fill(folder, what, goal)


def _fill(folder: Path, what: str, goal: tuple[str, ...]) -> str | None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        complete = Path(scratch, "complete")
        command = ["mvn", "--quiet", "--batch-mode", *goal, f"-DoutputDirectory={complete}"]
        run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
        try:
            ran = run(command, cwd=scratch, timeout=SECONDS)  # it notes there what it unpacks
        except subprocess.TimeoutExpired:
            return f"Maven did not bring {what} within {SECONDS} s"
        if ran.returncode != 0:
            told = "\n".join((ran.stdout + ran.stderr).splitlines()[:LINES_TOLD])
            return f"Maven could not bring {what}:\n{told}"
        complete.rename(folder)
    return None


def skip(why_not: str) -> NoReturn:
    """Skip the test; where ``CI`` is set it fails."""
    if "CI" in os.environ:
        pytest.fail(why_not, pytrace=False)
    pytest.skip(why_not)
