"""CI workflows install what tests need, and release notes come from the changelog."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.2.0] - 2026-01-02

- Another thing.

## [0.1.0]

- The first thing.
"""


def jobs(workflow: Path) -> dict[str, str]:
    _, _, text = workflow.read_text().partition("\njobs:\n")
    _, *parts = re.split(r"^  ([a-z-]+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_that_runs_the_suite_installs_the_system_packages(workflow: Path) -> None:
    """With ``CI`` set, tests fail without Kerberos or Maven instead of being skipped."""
    whole = re.compile(r"make (?:test|release-check|campaign)\b")
    bare = {
        name
        for name, text in jobs(workflow).items()
        if whole.search(text) and "run: .ci/system_packages" not in text
    }
    assert bare == set()


def test_the_oldest_versions_cover_the_dependencies_of_users() -> None:
    found = runpy.run_path(str(ROOT / ".ci" / "oldest.py"))["oldest"](ROOT / "pyproject.toml")
    assert "opentelemetry-instrumentation==0.49b0" in found  # there is no 0.49
    names = {one.partition("==")[0] for one in found}
    assert names >= {"crc32c", "kio", "opentelemetry-sdk", "pyarrow", "typer"}
    assert not names & {"grpcio-status", "mkdocs-material", "playwright", "pytest", "ruff"}


ONLY_OLD = "# Changelog\n\n## [0.1.0]\n\n- The first thing.\n"


@pytest.mark.parametrize(
    ("asked", "notes"),
    [
        ((CHANGELOG, "0.2.0"), "- Another thing."),
        ((CHANGELOG, "0.2.0", "v0.2.0"), "- Another thing."),
        ((CHANGELOG, "0.1.0"), "- The first thing."),
        ((CHANGELOG, "0.3.0"), "### Added\n\n- A thing."),
        ((CHANGELOG, "0.1.0", "v0.2.0"), ValueError(r"v0\.2\.0.*pyproject\.toml has 0\.1\.0")),
        ((CHANGELOG, "0.3.0", "v0.3.0"), ValueError(r"no heading 0\.3\.0")),
        ((ONLY_OLD, "0.4.0"), ValueError(r"nothing to say of 0\.4\.0")),
    ],
)
def test_release_notes_are_the_section_of_the_changelog(
    asked: Any, notes: str | ValueError
) -> None:
    """With a tag the version must match, and have a section."""
    notes_of = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["notes"]
    if isinstance(notes, str):
        assert notes_of(*asked) == notes
    else:
        with pytest.raises(ValueError, match=str(notes)):
            notes_of(*asked)
