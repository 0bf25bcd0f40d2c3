"""Artifacts that Maven downloads once to ``build/``; tests without them are skipped."""

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
LOG_LINES = 20


@functools.cache
def fetched(folder: Path, what: str, *goal: str) -> str | None:
    """Let the Maven goal fill the folder if it is missing; the reason if that failed, else None."""
    if shutil.which("java") is None:
        return f"{what} needs Java 17 or newer, but java is not on PATH"
    if folder.is_dir():
        return None
    if shutil.which("mvn") is None:
        return f"{what} needs Maven, but mvn is not on PATH"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading it
        return None if folder.is_dir() else _fill(folder, what, goal)


def _fill(folder: Path, what: str, goal: tuple[str, ...]) -> str | None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        complete = Path(scratch, "complete")
        command = ["mvn", "--quiet", "--batch-mode", *goal, f"-DoutputDirectory={complete}"]
        run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
        try:
            ran = run(command, cwd=scratch, timeout=SECONDS)  # it writes its markers there
        except subprocess.TimeoutExpired:
            return f"Maven did not download {what} within {SECONDS} s"
        if ran.returncode != 0:
            output = "\n".join((ran.stdout + ran.stderr).splitlines()[:LOG_LINES])
            return f"Maven could not download {what}:\n{output}"
        complete.rename(folder)
    return None


def skip(why_not: str) -> NoReturn:
    """Skip the test; fail it if ``CI`` is set."""
    if "CI" in os.environ:
        pytest.fail(why_not, pytrace=False)
    pytest.skip(why_not)
