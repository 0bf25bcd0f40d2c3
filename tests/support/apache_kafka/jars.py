"""Apache Kafka's jars: fetched by Maven once per version, kept below ``build/``.

``python -m tests.support.apache_kafka.jars`` fetches what a run's tests need, and skips nothing.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.tier import FULL

NEWEST = "4.3.1"
OLDER = "3.9.2"
OLDER_TOO = pytest.param(OLDER, marks=pytest.mark.full)
"""The older version where both are tested: in the full run only."""

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).parents[3] / "build" / "apache-kafka"
SECONDS = 280
LINES_TOLD = 20


def jars(version: str, profile: str = "broker") -> Path:
    """The folder with all jars of that version: a broker's, or with the profile "tools" of these.

    Skips the test where there is no Java or no Maven, or Maven gets nothing, and says so; where
    ``CI`` is set the test fails.
    """
    folder, why_not = _fetched(version, profile)
    if why_not is None:
        return folder
    if "CI" in os.environ:
        pytest.fail(why_not, pytrace=False)
    pytest.skip(why_not)


@functools.cache
def _fetched(version: str, profile: str = "broker") -> tuple[Path, str | None]:
    """The folder, and why it is not there."""
    folder = CACHE / (version if profile == "broker" else f"{version}-{profile}")
    if shutil.which("java") is None:
        return folder, "Apache Kafka needs Java 17 or newer, and there is no java on PATH"
    if folder.is_dir():
        return folder, None
    if shutil.which("mvn") is None:
        return folder, "Apache Kafka's jars come by Maven, and there is no mvn on PATH"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching it
        if folder.is_dir():
            return folder, None
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=version) as scratch:
            complete = Path(scratch, "jars")
            why_not = _run_maven(version, complete, profile)
            # Renamed when complete, so that a fetch that was stopped leaves no half-filled folder.
            if why_not is None:
                complete.rename(folder)
    return folder, why_not


def _run_maven(version: str, into: Path, profile: str) -> str | None:
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(POM), f"-Dkafka.version={version}"]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={into}"]
    command += [] if profile == "broker" else [f"-P{profile}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"Maven did not bring Apache Kafka {version} within {SECONDS} s"
    if ran.returncode == 0:
        return None
    told = "\n".join((ran.stdout + ran.stderr).splitlines()[:LINES_TOLD])
    return f"Maven could not bring Apache Kafka {version}:\n{told}"


if __name__ == "__main__":
    fetched = [_fetched(NEWEST)]
    if FULL:
        fetched += [_fetched(OLDER), _fetched(NEWEST, "tools")]
    reasons = [why_not for _, why_not in fetched if why_not is not None]
    sys.exit("\n".join(reasons) or None)
