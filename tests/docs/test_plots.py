"""The plots of the documentation are those of the stored results, and can be read by everybody."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.report.plots import PLACE, image, panels, plot_files

DRAWN = sorted(PLACE.glob("*"))
SVG = "{http://www.w3.org/2000/svg}"
READABLE = 4.5
"""The least contrast of text by the guidelines for web content (WCAG 2.2, 1.4.3)."""


def test_the_plots_are_those_of_the_results() -> None:
    assert {file.name: file.read_text() for file in DRAWN} == plot_files(), (
        "run: python -m benchmarks.report"
    )


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.name)
def test_a_plot_needs_nothing_else_and_says_what_it_shows(file: Path) -> None:
    drawn = ET.parse(file).getroot()
    shown = panels(file.stem)
    title = drawn.findtext(f"{SVG}title") or ""
    for panel in shown:
        for bar in panel.bars:
            assert f"{bar.label} " in title
            assert f"{bar.label} " in image(f"plots/{file.stem}")
    assert len(list(drawn.iter(f"{SVG}rect"))) == 1 + sum(len(panel.bars) for panel in shown)
    assert not re.findall(r"href|url\(|@import", file.read_text())


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.name)
def test_nothing_leads_out_of_a_plot(file: Path) -> None:
    drawn = ET.parse(file).getroot()
    left, top, width, height = map(float, drawn.attrib["viewBox"].split())
    for one in drawn.iter(f"{SVG}rect"):
        x, y = float(one.attrib.get("x", 0)), float(one.attrib.get("y", 0))
        assert left <= x <= x + float(one.attrib["width"]) <= left + width
        assert top <= y <= y + float(one.attrib["height"]) <= top + height


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.name)
def test_text_can_be_read_by_day_and_by_night(file: Path) -> None:
    day, night = file.read_text().split("@media (prefers-color-scheme: dark)")
    for scheme in (day, night.partition("} }")[0]):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", scheme))
        assert contrast(colours["ink"], colours["paper"]) >= READABLE
        assert contrast(colours["ours"], colours["other"]) > 1.5


def test_a_plot_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    assert plot_files(tmp_path) == {}
    with pytest.raises(KeyError):
        image("plots/no-such")


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminance, from 1 to 21 (WCAG 2.2)."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
