"""Apache Kafka's jars: downloaded by Maven once per version, kept below ``build/``.

``python -m tests.support.apache_kafka.jars`` downloads those that a run needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.maven import BUILD, fetched, skip
from tests.support.tier import FULL

NEWEST = "4.3.1"
OLDER = "3.9.2"
OLDER_TOO = pytest.param(OLDER, marks=pytest.mark.full)
"""A parameter: the older version, in the full run only."""

POM = Path(__file__).with_name("pom.xml")
CACHE = BUILD / "apache-kafka"


def jars(version: str) -> Path:
    """The folder with all jars of a broker; without them the test is skipped, or fails in CI."""
    if why_not := _why_not(version):
        skip(why_not)
    return CACHE / version


def _why_not(version: str) -> str | None:
    goal = ["--file", str(POM), f"-Dkafka.version={version}", "dependency:copy-dependencies"]
    return fetched(CACHE / version, f"Apache Kafka {version}", *goal, "-DincludeScope=runtime")


if __name__ == "__main__":
    wanted = [NEWEST, OLDER] if FULL else [NEWEST]
    sys.exit("\n".join(filter(None, map(_why_not, wanted))) or None)
