"""Generated pages, plots and quoted figures match the tables and stored results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.report.plots import PLACE, plot_files
from benchmarks.report.quotes import PAGES, outside, quoted
from tools.pages.__main__ import DOCS, written


@pytest.mark.parametrize("name", written())
def test_a_generated_page_matches_its_table(name: str) -> None:
    kept = (DOCS / name).read_text(encoding="utf-8")
    assert kept == written()[name], "run: python -m tools.pages"


DRAWN = sorted(PLACE.glob("*"))


@pytest.mark.full
def test_the_plots_match_the_results() -> None:
    assert {file.name: file.read_text() for file in DRAWN} == plot_files(), (
        "run: python -m benchmarks.report"
    )


NAMES = [page.name for page in PAGES]
A_FIGURE = re.compile(
    r"\d[\d,.]*\s*(?:x\b|times|million records|records/s|records per second|[MG]B/s|us\b|µs|ns\b)"
)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_quoted_figures_match_the_stored_results(page: Path) -> None:
    text = page.read_text()
    assert quoted(text) == text, "run: python -m benchmarks.report"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_there_are_no_figures_outside_of_quotes(page: Path) -> None:
    assert A_FIGURE.findall(outside(page.read_text())) == []
