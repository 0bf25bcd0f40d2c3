"""All calls have the same limit for the size of a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprod.errors import RecordTooLargeError
from kprod.types import Header
from kprod_ext import batch_size_upper_bound
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_producer import producer_before
from tests.support.tier import examples

LIMIT = 40_000
KINDS = [pa.binary(), pa.large_binary(), pa.binary_view()]

names = st.sampled_from(["", "n", "\u00fc" * 31, "n" * 64, "n" * 9_000])
payloads = st.sampled_from([None, b"", b"x", b"x" * 63, b"x" * 64, b"x" * 8_191, b"x" * 8_192])
headers: st.SearchStrategy[list[Header]] = st.one_of(
    st.just([]),
    st.lists(st.tuples(names, payloads), min_size=1, max_size=3),
    st.integers(62, 66).map(lambda n: [("n", b"")] * n),
    st.integers(8_190, 8_200).map(lambda n: [("", b"1")] * n),
)
sizes = st.integers(-20, 20).map(lambda beyond: LIMIT + beyond)


class Calls:
    """A producer, and every call that can send a record."""

    def __init__(self, **options: Any) -> None:
        self.cluster = ScriptedCluster(topics={"t": [1]})
        self.cluster.add(1)
        self.producer = producer_before(self.cluster, linger_ms=0, **options)

    def outcomes(
        self, key: bytes | None, value: bytes | None, pairs: list[Header], kind: Any
    ) -> list[str | None]:
        """The error of each call if the record is too large, else None."""
        named = {"key": "key"}
        columns = {"value": pa.array([value], kind), "key": pa.array([key], kind)}
        if pairs:  # without headers the column must be missing
            columns["headers"] = pa.array([pairs], pa.map_(pa.string(), kind))
            named["headers"] = "headers"
        many: dict[str, Any] = {"keys": [key], "headers": [pairs], "partitions": [0]}
        return [
            refusal(lambda: self.producer.send("t", value, key, pairs, 0, 1), "record 0: "),
            refusal(lambda: self.producer.send_many("t", [value], timestamps_ms=1, **many)),
            refusal(lambda: self.producer.send_arrow("t", pa.table(columns), **named)),
        ]


def refusal(call: Callable[[], object], prefix: str = "") -> str | None:
    try:
        call()
    except RecordTooLargeError as error:
        return f"{prefix}{error}"
    return None


def value_for(size: int, key: bytes | None, pairs: list[Header]) -> bytes | None:
    """A value for a record of that size, or slightly less where that is impossible."""
    room = max(0, size - batch_size_upper_bound(key, None, pairs))
    return next(
        (
            bytes(n)
            for n in range(room, max(-1, room - 5), -1)
            if batch_size_upper_bound(key, bytes(n), pairs) <= size
        ),
        None,
    )


@settings(max_examples=examples(30))
@given(key=payloads, pairs=headers, size=sizes, kind=st.sampled_from(KINDS))
def test_every_call_accepts_and_rejects_the_same_records(
    calls: Calls, key: bytes | None, pairs: list[Header], size: int, kind: Any
) -> None:
    value = value_for(size, key, pairs)
    error, *others = calls.outcomes(key, value, pairs, kind)
    assert (error is None) == (batch_size_upper_bound(key, value, pairs) <= LIMIT)
    assert others == [error, error]


@pytest.fixture(scope="module", params=["max_request_size", "buffer_memory"])
def calls(request: pytest.FixtureRequest) -> Any:
    options = {"max_request_size": 2 * LIMIT, "buffer_memory": 2 * LIMIT, request.param: LIMIT}
    found = Calls(batch_size=1_000, **options)
    with found.producer:
        yield found
