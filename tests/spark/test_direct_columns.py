"""Which record batches go to ``send_arrow`` as they are, and what they weigh."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from kprod.errors import RecordTypeError
from kprod.spark.arrow_columns import direct_columns, payload_bytes
from kprod.spark.record_shapes import RecordShapes
from tests.support.steady_names import steady_repr

SHAPES = RecordShapes(topic="t")
WITHOUT = {"key": None, "headers": None, "partition": None, "timestamp": None}

PAYLOADS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


@pytest.mark.parametrize("kind", PAYLOADS, ids=str)
def test_text_and_bytes_are_taken_as_they_are_and_weighed(kind: Any) -> None:
    column = pa.array(["a", None, "gr\u00fcn", ""]).cast(kind)
    batch = pa.RecordBatch.from_arrays([column, column.slice(0)], ["value", "key"]).slice(1)
    columns = direct_columns(batch, SHAPES)
    assert columns == {**WITHOUT, "value": "value", "key": "key"}
    assert payload_bytes(batch, columns) == 2 * len("gr\u00fcn".encode())


def test_nothing_weighs_nothing() -> None:
    nothing = {"value": pa.nulls(2), "key": pa.array([None, None], pa.string())}
    batch = pa.RecordBatch.from_pydict(nothing)
    for some in (batch, batch.slice(0, 0)):
        columns = direct_columns(some, SHAPES)
        assert columns is not None
        assert payload_bytes(some, columns) == 0


def test_columns_of_spark_s_own_sink_are_taken_under_the_names_given() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "payload": pa.array([b"v"]),
            "tailnum": pa.array(["k"]),
            "topic": pa.array(["ignored: one was given"]),
            "headers": pa.array([[("h", b"x")]], pa.map_(pa.string(), pa.binary())),
            "partition": pa.array([3], pa.int32()),
            "timestamp": pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC")),
        }
    )
    shapes = RecordShapes(topic="t", key="tailnum", value="payload")
    assert direct_columns(batch, shapes) == {
        "value": "payload",
        "key": "tailnum",
        "headers": "headers",
        "partition": "partition",
        "timestamp": "timestamp",
    }


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array(["v"]).dictionary_encode()},
        {"value": [17]},
        {"value": pa.array([uuid.UUID(int=1).bytes], pa.uuid())},
        {"value": ["v"], "partition": pa.array([1], pa.int8())},
    ],
    ids=["dictionary", "number", "extension", "int8"],
)
def test_what_has_to_be_converted_is_read_row_by_row(columns: dict[str, Any]) -> None:
    assert direct_columns(pa.RecordBatch.from_pydict(columns), SHAPES) is None


@pytest.mark.parametrize(
    ("names", "direct"),
    [(("key", "value"), True), (("value", "key"), False), (("name", "value"), False)],
)
def test_headers_are_taken_as_they_are_if_their_key_comes_first(
    names: tuple[str, str], direct: bool
) -> None:
    """By position they would be written swapped."""
    kind = pa.list_(pa.struct([(name, pa.string()) for name in names]))
    headers = pa.array([[dict.fromkeys(names, "x")]], kind)
    batch = pa.RecordBatch.from_pydict({"value": ["v"], "headers": headers})
    assert (direct_columns(batch, SHAPES) is not None) == direct


def test_columns_without_a_type_are_left_out() -> None:
    columns = {name: pa.nulls(1) for name in ("key", "headers", "partition", "timestamp")}
    batch = pa.RecordBatch.from_pydict({"value": ["v"], **columns})
    assert direct_columns(batch, SHAPES) == {**WITHOUT, "value": "value"}


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": ["k"]}, "no column 'value'"),
        ({"value": ["v"], "carrier": ["UA"]}, "no place for .'carrier'."),
    ],
    ids=steady_repr,
)
def test_columns_that_fit_no_record_are_refused(columns: Any, complaint: str) -> None:
    with pytest.raises(RecordTypeError, match=complaint):
        direct_columns(pa.RecordBatch.from_pydict(columns), SHAPES)
