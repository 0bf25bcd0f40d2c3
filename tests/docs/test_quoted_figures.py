"""What the documentation says of speed comes from stored results, and is not typed in."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.report.quotes import NOT_YET, PAGES, PLACE, outside, quoted
from tests.benchmarks.sample_results import write_samples

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


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_there_are_places_for_figures(page: Path) -> None:
    assert PLACE.search(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_places_are_filled_again_and_again(page: Path, tmp_path: Path) -> None:
    write_samples(tmp_path)
    once = quoted(page.read_text(), tmp_path)
    assert NOT_YET not in once
    assert quoted(once, tmp_path) == once
    assert outside(once) == outside(page.read_text())


def test_every_quoted_number_is_in_the_result(tmp_path: Path) -> None:
    write_samples(tmp_path)
    stored = json.loads((tmp_path / "acceptance.json").read_text())
    side = stored["figures"]["comparisons"]["keyed"]["sides"]["kprod send"]
    median = side["figures"]["records_per_second"]["median"]
    place = "<!-- figures: keyed -->\n<!-- end of figures -->"
    line = next(line for line in quoted(place, tmp_path).splitlines() if "kprod send |" in line)
    assert f"**{median:,.0f}**" in line


def test_a_place_without_figures_is_a_mistake(tmp_path: Path) -> None:
    write_samples(tmp_path)
    with pytest.raises(KeyError, match="no-such"):
        quoted("<!-- figures: no-such -->\n<!-- end of figures -->", tmp_path)


def test_before_anything_was_measured_a_page_says_so(tmp_path: Path) -> None:
    place = "<!-- figures: goals -->\nold\n<!-- end of figures -->"
    assert quoted(place, tmp_path) == f"<!-- figures: goals -->\n{NOT_YET}<!-- end of figures -->"
