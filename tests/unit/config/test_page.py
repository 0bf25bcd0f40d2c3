"""docs/configuration.md is what the table of options says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kprod.config import OPTIONS
from kprod.config.foreign_options import IGNORED, UNAVAILABLE_FAMILIES, unavailable
from kprod.config.pages import page

ROOT = Path(__file__).parents[3]


def test_the_page_in_the_documentation_is_current() -> None:
    kept = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert kept == page(), "run: python -m kprod.config > docs/configuration.md"


def test_it_is_printed_by_the_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kprod.config"], cwd=ROOT, capture_output=True, check=True
    )
    assert ran.stdout.decode() == page()


def test_every_option_has_a_section() -> None:
    headings = [line for line in page().splitlines() if line.startswith("## `")]
    assert headings == [f"## `{name}`" for name in OPTIONS]


def test_every_option_tells_which_version_brought_it() -> None:
    assert page().count("\n- since: ") == len(OPTIONS)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", row.since) for row in OPTIONS.values())


def test_no_option_of_ours_is_also_called_foreign() -> None:
    ours = [name for name in OPTIONS if not name.startswith(tuple(UNAVAILABLE_FAMILIES))]
    assert not [name for name in ours if name in IGNORED or unavailable(name)]
