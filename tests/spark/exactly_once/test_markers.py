"""Markers and decisions in the offset metadata of groups, valid and invalid."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kprod.exactly_once.errors import MarkerError
from kprod.exactly_once.marker import Marker, read_marker
from kprod.exactly_once.protocol import Decision, decided, read_decision
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import PreparedShard
from kprod.transactional.two_phase_commit import PreparedTransaction

WHOLE: dict[str, Any] = {
    "kprod": 1,
    "batch": 4,
    "shards": 2,
    "rows": 10,
    "bytes": 100,
    "run": "first",
    "ranges": {"t": [[0, 5, 14, 10]]},
}
WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("batch", "shards", "rows", "bytes", "pieces"), (True, 1.0, 1e400, "1", -1, 2**63, [], {})
    ),
    "kprod": (True, 2),
    "run": (None, 5),
    "topic": (5,),
    "digest": (True, 1.0, "1", -1, 2**64),
    "winners": (5, ["0:1:2:"], {}, True),
    "ranges": (
        *(5, [], "t", {"t": 5}, {"t": {}}, {"t": ""}, {"t": [5]}),
        *({"t": [[0, 1, 2]]}, {"t": [[0, 1, 2, "3"]]}),
    ),
}
NESTED = b"[" * 100_000 + b"]" * 100_000
NOT_MARKERS = {
    "nothing": b"",
    "no text": b"\xff\xfe\xfd",
    "a number": b"5",
    "a list": b"[]",
    "a text": b'"kprod"',
    "nested": NESTED,
    "nested ranges": json.dumps(WHOLE).encode()[:-1] + b',"ranges":' + NESTED + b"}",
    "digits": b'{"kprod":1,"batch":' + b"9" * 5_000 + b"}",
}


def invalid() -> Iterator[tuple[str, bytes]]:
    yield from NOT_MARKERS.items()
    changes = [(name, value) for name, values in WRONG.items() for value in values]
    for name, value in (*changes, ("shards", 0), ("shards", 10_001), ("pieces", 0)):
        yield f"{name}={value}", json.dumps({**WHOLE, name: value}).encode()
    for name in WHOLE.keys() - {"ranges"}:
        left = {other: value for other, value in WHOLE.items() if other != name}
        yield f"no {name}", json.dumps(left).encode()


@pytest.mark.parametrize(
    "metadata", [pytest.param(text, id=name) for name, text in sorted(invalid())]
)
def test_invalid_markers_are_reported_with_their_group(metadata: bytes) -> None:
    with pytest.raises(MarkerError, match=r"group 'g' has committed offset 5 .*transaction_prefix"):
        read_marker(5, metadata, "g")


def test_a_marker_survives_a_round_trip() -> None:
    found = read_marker(5, json.dumps({**WHOLE, "of a later version": []}).encode(), "g")
    assert found == Marker(
        batch=4, shards=2, rows=10, bytes=100, run="first", ranges={"t": [[0, 5, 14, 10]]}
    )
    assert read_marker(5, found.metadata.encode(), "g") == found
    assert read_marker(-1, b"", "g") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*WHOLE, "winners", "pieces"]), json_values))
@example({"pieces": 2})  # of a missing decision
def test_every_accepted_marker_survives_a_round_trip(changed: dict[str, Any]) -> None:
    metadata = json.dumps({**WHOLE, **changed}).encode()
    try:
        found = read_marker(5, metadata, "g")
    except MarkerError:
        return
    assert found is not None
    assert read_marker(5, found.metadata.encode(), "g") == found


OF = Shard(prefix="p", job="j", number=0, batch=4, shards=3, topic="t", run="first")


def read(winners: str, **values: Any) -> Decision | None:
    reading: Generator[Any, Any, Decision | None] = read_decision(OF, wait=True)
    next(reading)
    try:
        reading.send(Marker(**{"batch": 4, "shards": 3, "winners": winners, **values}))
    except StopIteration as end:
        decision: Decision | None = end.value
        return decision
    raise AssertionError("the decision has one piece")


@pytest.mark.parametrize(
    "winners",
    [
        "0:1:2",
        "0:1:2:3:4",
        "a:1:2:,,",
        "0:1:2:,",  # of three shards
        "0:1:2:,,,",
        "-1:1:2:,,",
        "0:-1:2:,,",
        "0:1:32768:,,",
        "0:9223372036854775808:2:,,",
        "0:1:2:-1,,",
        "0:1:2:x,,",
        " 0:1:2:,,",
        "0:1_0:2:,,",
        "0:" + "9" * 5_000 + ":2:,,",
    ],
)
def test_invalid_decisions_are_reported_with_their_shard(winners: str) -> None:
    with pytest.raises(MarkerError, match=r"decision for shard 0 of 3 .* was not written by kprod"):
        read(winners)


def test_a_decision_without_a_number_of_shards_is_refused() -> None:
    with pytest.raises(MarkerError):
        read("", shards=None)


def test_a_decision_survives_a_round_trip() -> None:
    shard = replace(OF, number=1, attempt=2)
    prepared = PreparedShard(shard, PreparedTransaction(shard.transactional_id, 7, 1, level=2))
    [(group, marker)] = decided(OF, 3, [prepared])
    assert group == OF.layout_id
    decision = read(marker.winners or "")
    assert decision is not None
    assert dict(decision.winners) == {1: prepared}
