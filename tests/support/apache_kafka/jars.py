"""Apache Kafka's jars: fetched by Maven once per version, kept below ``build/``.

``python -m tests.support.apache_kafka.jars`` fetches what a run's tests need, and skips nothing.
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
"""The older version where both are tested: in the full run only."""

POM = Path(__file__).with_name("pom.xml")
CACHE = BUILD / "apache-kafka"


def jars(version: str, profile: str = "broker") -> Path:
    """The folder with all jars of that version: a broker's, or with the profile "tools" of these.

    Skips the test where there is no Java or no Maven, or Maven gets nothing, and says so; where
    ``CI`` is set the test fails.
    """
    if why_not := _why_not(version, profile):
        skip(why_not)
    return _folder(version, profile)


def _folder(version: str, profile: str) -> Path:
    return CACHE / (version if profile == "broker" else f"{version}-{profile}")


def _why_not(version: str, profile: str = "broker") -> str | None:
    goal = ["--file", str(POM), f"-Dkafka.version={version}", "dependency:copy-dependencies"]
    goal += ["-DincludeScope=runtime", *([] if profile == "broker" else [f"-P{profile}"])]
    return fetched(_folder(version, profile), f"Apache Kafka {version}", *goal)


if __name__ == "__main__":
    wanted = [(NEWEST, "broker")]
    if FULL:
        wanted += [(OLDER, "broker"), (NEWEST, "tools")]
    sys.exit("\n".join(filter(None, [_why_not(*one) for one in wanted])) or None)
