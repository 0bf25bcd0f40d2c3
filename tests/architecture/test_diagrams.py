"""The diagrams of the documentation match the code."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tools.diagrams import DIAGRAMS, PLACE, drawn_edges


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_has_the_transitions_of_the_code(name: str) -> None:
    make, _ = DIAGRAMS[name]
    edges = set(make())
    assert len(edges) > 5
    assert drawn_edges(PLACE / f"{name}.svg") == edges, "run: make diagrams"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_names_the_calls_of_the_application(name: str) -> None:
    make, label = DIAGRAMS[name]
    drawing = ET.parse(PLACE / f"{name}.svg").getroot()
    assert drawing.attrib["aria-label"] == label
    texts = {text.strip() for text in drawing.itertext()}
    assert {call for call in make().values() if call} <= texts
