"""Arrow columns as Protobuf messages."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from kprod.errors import RecordTypeError
from kprod.schema.columns.encoded_columns import Encoded, EncodedColumns
from kprod.schema.encoding import ProtobufEncoding
from kprod.schema.messages import message_of
from tests.support.all_fields import FILES, KINDS, Fields

INTEGERS = {"int32", "int64", "uint32", "uint64"}
MOMENT = datetime.datetime(2026, 7, 1, 12, 0, 0, 123_456, tzinfo=datetime.UTC)
ACCEPTED: list[tuple[Any, Any, set[str]]] = [
    (pa.bool_(), True, {"bool"}),
    (pa.int8(), 1, INTEGERS | {"float", "double", "enum"}),
    (pa.int16(), 1, INTEGERS | {"float", "double", "enum"}),
    (pa.int32(), 1, INTEGERS | {"double", "enum"}),
    (pa.int64(), 1, INTEGERS | {"enum"}),
    (pa.float32(), 0.5, {"float", "double"}),
    (pa.float64(), 0.1, {"double"}),
    (pa.string(), "PAID", {"string", "enum"}),
    (pa.binary(), b"\xff", {"bytes"}),
    (pa.timestamp("us", "Asia/Tokyo"), MOMENT, {"timestamp"}),
    (pa.duration("us"), datetime.timedelta(days=1, microseconds=1), {"duration"}),
    (pa.timestamp("us"), MOMENT, set()),
    (pa.date32(), MOMENT.date(), set()),
    (pa.decimal128(9, 2), 1, set()),
]


def encoded(column: Any) -> Encoded:
    columns = EncodedColumns(ProtobufEncoding(FILES, "all.Fields"))
    return columns.converter(column.type)(column)


@pytest.mark.parametrize(
    ("kind", "cell", "fields"), ACCEPTED, ids=[str(kind) for kind, *_ in ACCEPTED]
)
def test_a_field_type_that_would_change_a_value_is_refused(
    kind: Any, cell: Any, fields: set[str]
) -> None:
    for name in KINDS:
        for value, nest, shape in (
            (cell, name, kind),
            ([cell, cell], f"list_{name}", pa.list_(kind)),
            ({"k": cell}, f"map_{name}", pa.map_(pa.string(), kind)),
            ({name: cell}, "inner", pa.struct([(name, kind)])),
        ):
            column = pa.array([{nest: value}], pa.struct([(nest, shape)]))
            if name in fields:
                messages, errors = encoded(column)
                assert errors == {}
                assert Fields.FromString(messages[0].as_py()) == message_of(Fields, {nest: value})
            else:
                with pytest.raises(RecordTypeError, match=rf"{name}\S*: .* does not fit into a"):
                    encoded(column)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"Int32": 1}, "Int32: all.Fields has no such field"),
        ({"map_int32": [1]}, "map_int32: list.* of type map"),
        ({"list_int32": 1}, "list_int32: int64.* of type repeated field"),
        ({"inner": 1}, r"inner: int64.* of type message all\.Inner"),
    ],
)
def test_a_column_without_a_matching_field_is_refused(row: Any, why: str) -> None:
    with pytest.raises(RecordTypeError, match=why):
        encoded(pa.array([row]))


def test_a_number_outside_the_range_of_its_field_is_an_error_of_its_row() -> None:
    messages, errors = encoded(pa.array([{"int32": 1}, {"int32": 2**40}, {"int32": None}, None]))
    assert list(errors) == [1]
    assert [message.is_valid for message in messages] == [True, False, True, False]
