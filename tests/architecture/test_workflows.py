"""CI's workflows run what a contributor runs, and a release's notes are the changelog's."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGET = re.compile(r"\bmake ([a-z][a-z-]*(?: [a-z][a-z-]*)*)")
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- A thing.

## [0.2.0] - 2026-01-02

- Another thing.

## [0.1.0]

- The first thing.
"""


def targets() -> set[str]:
    """Every target that the Makefile defines by name."""
    rules = re.findall(r"^([a-z][a-z -]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name for rule in rules for name in rule.split()}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_of_the_makefile(workflow: Path) -> None:
    called = TARGET.findall(workflow.read_text())
    assert called
    assert {name for names in called for name in names.split()} <= targets()


def test_the_documentation_names_every_workflow() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert not [path.name for path in WORKFLOWS if f"`{path.name}`" not in page]


@pytest.fixture(scope="module")
def notes() -> Callable[[str, str], str]:
    found: Callable[[str, str], str] = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))[
        "notes"
    ]
    return found


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.2.0", "- Another thing."),
        ("0.1.0", "- The first thing."),
        ("0.3.0", "### Added\n\n- A thing."),
    ],
)
def test_the_notes_of_a_release_are_its_section(
    notes: Callable[[str, str], str], version: str, text: str
) -> None:
    assert notes(CHANGELOG, version) == text


def test_a_version_without_a_section_has_no_notes(notes: Callable[[str, str], str]) -> None:
    with pytest.raises(ValueError, match=r"nothing to say of 0\.4\.0"):
        notes("# Changelog\n\n## [0.1.0]\n\n- The first thing.\n", "0.4.0")
