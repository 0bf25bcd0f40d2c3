"""What the writer makes of a message is what kio makes of it, to the byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.message_reader import EPOCH, FieldShape, field_shapes
from kprod.broker.protocol.messages import Frame, Message, message_writer
from tests.unit.broker.requests import EVERY_VERSION

NEWEST = dict(EVERY_VERSION)
# Loaded by the test that needs it: each worker collects all of them, and runs half.
EVERY = [
    pytest.param(
        partial(load, api, version),
        id=f"{api.name}-{side}-{version}",
        marks=() if version == NEWEST[api] else pytest.mark.full,
    )
    for api, version in EVERY_VERSION
    for side, load in (("request", load_request_schema), ("response", load_response_schema))
]
LARGEST_MS = 10**11
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.none() | st.uuids(),
    "error_code": st.sampled_from(list(ErrorCode)).map(int),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1),
    "timedelta_i64": st.integers(0, LARGEST_MS),
    "datetime_i64": st.integers(0, LARGEST_MS),
    "string": st.text(max_size=5) | st.text(min_size=130, max_size=140),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5) | st.just(bytes(70_000)),
}
MILLISECOND = timedelta(milliseconds=1)


def values_of(entity: Any) -> st.SearchStrategy[Message]:
    """Mappings with some of the fields."""
    return st.fixed_dictionaries({}, optional={s.name: _value(s) for s in field_shapes(entity)})


def _value(shape: FieldShape) -> st.SearchStrategy[Any]:
    one = values_of(shape.struct) if shape.struct else VALUES[shape.kafka_type]
    if shape.is_array:
        one = st.lists(one, max_size=2)
    return st.none() | one if shape.nullable and shape.tag is None else one


def as_entity(entity: Any, values: Message) -> Any:
    """An object of kio's class, with the same content."""
    made = {}
    for shape in field_shapes(entity):
        value = values.get(shape.name, shape.absent)
        if value is not shape.absent and value is not None:
            value = (
                tuple(_as_kio(shape, each) for each in value)
                if shape.is_array
                else _as_kio(shape, value)
            )
        made[shape.name] = value
    return entity(**made)


def _as_kio(shape: FieldShape, value: Any) -> Any:
    if shape.struct is not None:
        return as_entity(shape.struct, value)
    if shape.kafka_type == "error_code":
        return ErrorCode(value)
    if shape.kafka_type.startswith("timedelta"):
        return value * MILLISECOND
    return EPOCH + value * MILLISECOND if shape.kafka_type == "datetime_i64" else value


@pytest.mark.parametrize("load", EVERY)
@settings(max_examples=10)  # of 639 messages
@given(data=st.data())
def test_it_writes_what_kio_writes(load: Callable[[], Any], data: st.DataObject) -> None:
    entity = load()
    values = data.draw(values_of(entity))
    expected = io.BytesIO()
    entity_writer(entity)(expected, as_entity(entity, values))
    frame = Frame()
    message_writer(entity)(values, frame)
    assert frame.content() == expected.getvalue()


def test_large_values_stay_where_they_are() -> None:
    entity = load_response_schema(ApiKey.FETCH, 12)
    large = bytes(100_000)
    part = {"partition_index": 1, "records": large}
    frame = Frame()
    message_writer(entity)({"responses": [{"topic": "t", "partitions": [part]}]}, frame)
    parts = frame.parts()
    assert any(each is large for each in parts)
    size = int.from_bytes(bytes(parts[0])[:4], "big")  # type: ignore[arg-type]
    assert size == sum(map(len, parts)) - 4
    assert frame.content() == b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]
