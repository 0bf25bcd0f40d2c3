"""The terminals of the documentation are those of its commands, and need nothing from elsewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pyte
import pytest

from benchmarks.terminals import COMMANDS, PLACE, drawn, lines_of

PAGE = PLACE.parent / "cli.md"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_shows_its_command_and_is_on_the_page(name: str) -> None:
    shown = ET.parse(PLACE / f"{name}.svg").getroot()
    text = "".join(shown.itertext()).replace("\u00a0", " ")
    assert f"kprod {name}" in text
    assert COMMANDS[name] in (shown.findtext(f"{SVG}title") or "")
    assert f"](terminals/{name}.svg)" in PAGE.read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    written = (PLACE / f"{name}.svg").read_text()
    assert not re.findall(r"href|@import|@font-face", written)
    assert set(re.findall(r"https?://[^\"]*", written)) == {"http://www.w3.org/2000/svg"}


def test_what_stands_at_the_end_is_drawn() -> None:
    screen = pyte.Screen(80, 5)
    pyte.Stream(screen).feed("working\r\x1b[2K\x1b[1;32mdone\x1b[0m at 127.0.0.1:7")
    (line,) = lines_of(screen)
    assert line.plain == "done at 127.0.0.1:7"
    made = ET.fromstring(drawn("perf", [line], "127.0.0.1:7"))
    text = "".join(made.itertext()).replace("\u00a0", " ")
    assert "done" in text
    assert "working" not in text
    assert "localhost:9092" in text
