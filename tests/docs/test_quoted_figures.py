"""What the documentation says of speed comes from stored results, and is not typed in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.report.quotes import PAGES, outside, quoted

NAMES = [page.name for page in PAGES]
A_FIGURE = re.compile(
    r"\d[\d,.]*\s*(?:x\b|times|million records|records/s|records per second|[MG]B/s|us\b|µs|ns\b)"
)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_figures_are_those_that_are_stored(page: Path) -> None:
    text = page.read_text()
    assert quoted(text) == text, "run: python -m benchmarks.report"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_figure_stands_elsewhere(page: Path) -> None:
    assert A_FIGURE.findall(outside(page.read_text())) == []
