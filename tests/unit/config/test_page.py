"""The pages of the options in docs are what the table of options says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kprod.config import OPTIONS
from kprod.config.foreign_options import IGNORED, UNAVAILABLE_FAMILIES, unavailable
from kprod.config.pages import pages

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", pages())
def test_a_page_in_the_documentation_is_current(name: str) -> None:
    kept = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert kept == pages()[name], "run: python -m kprod.config docs"


def test_they_are_written_by_the_module(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "kprod.config", tmp_path], cwd=ROOT, check=True)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == pages()


def test_without_a_folder_nothing_is_written() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kprod.config"], cwd=ROOT, capture_output=True, check=False
    )
    assert ran.returncode == 1
    assert b"folder" in ran.stderr


def test_every_option_has_a_section() -> None:
    text = "".join(pages().values())
    headings = [line for line in text.splitlines() if line.startswith("## `")]
    assert headings == [f"## `{name}`" for name in OPTIONS]


def test_every_option_is_on_the_first_page_or_linked_from_it() -> None:
    first = pages()["configuration.md"]
    assert not [name for name in OPTIONS if f"`{name}`" not in first]


def test_every_option_tells_which_version_brought_it() -> None:
    assert "".join(pages().values()).count("\n- since: ") == len(OPTIONS)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", row.since) for row in OPTIONS.values())


def test_no_option_of_ours_is_also_called_foreign() -> None:
    ours = [name for name in OPTIONS if not name.startswith(tuple(UNAVAILABLE_FAMILIES))]
    assert not [name for name in ours if name in IGNORED or unavailable(name)]
