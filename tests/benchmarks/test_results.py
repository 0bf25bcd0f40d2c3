"""Stored results: whole or not at all, and they say where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.flight_events import flight_events
from benchmarks.import_cost import import_cost
from benchmarks.provenance import provenance
from benchmarks.result_file import read_result, write_result


def test_a_result_comes_back_with_its_origin(tmp_path: Path) -> None:
    origin = provenance()
    file = write_result(
        "one",
        question="?",
        command="python -m one",
        origin=origin,
        settings={"rounds": 1},
        figures={"rate": 3},
        folder=tmp_path / "results",
    )
    assert [path.name for path in file.parent.iterdir()] == ["one.json"]
    stored = read_result("one", tmp_path / "results")
    assert stored["figures"] == {"rate": 3}
    assert {name: stored[name] for name in origin} == origin


def test_a_missing_result_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"benchmarks/README\.md"):
        read_result("none", tmp_path)


def test_the_origin_names_versions_and_machine_but_no_host() -> None:
    origin = provenance()
    assert origin["machine"]["cores"] > 0
    assert {"kprod", "confluent-kafka", "librdkafka", "python"} <= origin["versions"].keys()
    assert "node" not in origin["machine"]
    assert origin["paths"]["crc32c"] in {"hardware", "software"}


def test_flight_events_are_about_a_kilobyte_and_the_same_every_time() -> None:
    events = flight_events(500)
    assert events == flight_events(500)
    assert len(set(events)) == 500
    assert 900 < sum(map(len, events)) / 500 < 1_100


def test_importing_is_measured_in_a_fresh_interpreter() -> None:
    cost = import_cost(1)
    assert len(cost["import_ms"]) == 1
    assert cost["unwanted"] == []
