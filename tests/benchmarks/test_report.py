"""The report: one file, whole, that asks nothing of the network."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

from benchmarks.report.chart import Bar, bar_chart
from benchmarks.report.page import page
from tests.benchmarks.sample_results import write_samples


class Tags(HTMLParser):
    """Counts what is open, and notes what a browser would fetch."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [name for name, _value in attrs if name in {"src", "href"}]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing(tmp_path: Path) -> None:
    write_samples(tmp_path)
    made = page(tmp_path)
    tags = Tags(made)
    assert tags.open == []
    assert tags.fetched == []
    assert "<script" not in made
    assert "1,617,000" in made  # the median of two rounds, to four digits
    assert "&lt;it&gt; failed" in made
    assert "not for quoting" in made


def test_what_was_not_measured_is_named(tmp_path: Path) -> None:
    assert page(tmp_path).count("Not measured yet") == 4


def test_bars_are_as_long_as_medians() -> None:
    bars = [
        Bar("kprod send", {"median": 50.0, "min": 40.0, "max": 100.0}),
        Bar("other & <co>", {"median": 25.0, "min": 20.0, "max": 30.0}),
    ]
    figure = ET.fromstring(bar_chart("Speed", "x", bars, limit=80.0))
    rectangles = list(figure.iter("rect"))
    first, second = (float(one.attrib["width"]) for one in rectangles)
    assert first == 2 * second
    assert [one.attrib["class"] for one in rectangles] == ["ours", "other"]


def test_nothing_measured_is_no_chart() -> None:
    assert bar_chart("Speed", "x", []) == ""
