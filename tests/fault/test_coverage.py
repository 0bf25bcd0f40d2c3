"""COVERAGE.md names existing tests."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("COVERAGE.md")
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_test_named_in_coverage_md_exists() -> None:
    """If this fails after a rename, rename the test in COVERAGE.md, too."""
    named = TEST.findall(PAGE.read_text())
    assert named
    assert not [
        f"{path}::{name}"
        for path, name in sorted(set(named))
        if not re.search(rf"^\s*(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE)
    ]
