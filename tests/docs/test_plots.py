"""The plots of the documentation are those of the stored results."""

from __future__ import annotations

import pytest

from benchmarks.report.plots import PLACE, plot_files

pytestmark = pytest.mark.full

DRAWN = sorted(PLACE.glob("*"))


def test_the_plots_are_those_of_the_results() -> None:
    assert {file.name: file.read_text() for file in DRAWN} == plot_files(), (
        "run: python -m benchmarks.report"
    )
