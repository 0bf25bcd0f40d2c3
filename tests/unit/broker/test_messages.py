"""Reading and writing messages as kio does, and malformed messages."""

from __future__ import annotations

import io
import resource
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.message_reader import (
    EPOCH,
    Allowance,
    FieldShape,
    field_shapes,
    message_reader,
)
from kprod.broker.protocol.messages import Frame, Message, message_writer, request_schema
from kprod.errors import ProtocolError
from tests.support.raw_batch import raw_batch
from tests.unit.broker.requests import EVERY_VERSION, REQUESTS

HEADER = {"request_api_key": 3, "request_api_version": 0, "correlation_id": -5, "client_id": "ü"}


def kio_reads(entity: Any, frame: bytes) -> tuple[Any, Any]:
    header, at = entity_reader(entity.__header_schema__)(frame, 0)
    return header, entity_reader(entity)(frame, at)[0]


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: str(api.name))
def test_requests_are_decoded_as_by_kio(api: ApiKey) -> None:
    for version in (version for each, version in EVERY_VERSION if each is api):
        frame = request_schema(api, version).encode(HEADER, REQUESTS[api])[4:]
        expected = kio_reads(load_request_schema(api, version), frame)
        assert request_schema(api, version).decode(frame) == expected, version


def test_every_truncated_message_is_malformed() -> None:
    schema = request_schema(ApiKey.PRODUCE, 9)
    frame = schema.encode(HEADER, REQUESTS[ApiKey.PRODUCE])[4:]
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            schema.decode(frame[:cut])
    _, body = schema.decode(frame + b"more")
    part = body.topic_data[0].partition_data[0]
    assert part.records == raw_batch([b"a", b"b"])
    assert isinstance(part.records, memoryview), "not a copy"


@pytest.mark.parametrize(
    "count", ["7fffffff", "fffffffe", "80000000", "00010000"], ids=lambda count: f"count {count}"
)
def test_large_counts_allocate_no_memory(count: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError):
        request_schema(ApiKey.METADATA, 4).decode(bytes(8) + b"\xff\xff" + bytes.fromhex(count))
    with pytest.raises(ProtocolError):
        request_schema(ApiKey.METADATA, 12).decode(bytes(8) + b"\xff\xff\0" + b"\xff" * 4 + b"\x0f")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 50_000


@pytest.mark.parametrize(
    ("tags", "valid"),
    [
        ("00", True),
        ("01 05 02 abcd", True),
        ("02 05 00 09 01 ff", True),
        ("02 09 00 05 00", False),
        ("02 05 00 05 00", False),
        ("01 05 03 abcd", False),
        ("ffffffff0f", False),
        ("01 00 05 03 63 6c 75 00", False),
        ("01 00 04 04 63 6c 75", True),
        ("8080808080 00", False),
    ],
)
def test_tagged_fields_must_be_sorted_and_complete(tags: str, valid: bool) -> None:
    entity = load_request_schema(ApiKey.FETCH, 12)
    body = bytes(25) + b"\1\1\1" + bytes.fromhex(tags)
    data = memoryview(body)
    if valid:
        assert message_reader(entity)(data, 0, Allowance(100))[1] == len(body)
    else:
        with pytest.raises((ProtocolError, IndexError)):
            message_reader(entity)(data, 0, Allowance(100))


def test_a_name_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        request_schema(ApiKey.METADATA, 4).decode(bytes(8) + b"\xff\xff\0\0\0\1\0\2\xff\xfe\1")


# Messages are written as by kio, byte for byte ----------------------------------------------------


NEWEST = dict(EVERY_VERSION)
# Loaded by the tests: each worker collects all of them but runs only a part.
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
    fields = {}
    for shape in field_shapes(entity):
        value = values.get(shape.name, shape.absent)
        if value is not shape.absent and value is not None:
            value = (
                tuple(_as_kio(shape, each) for each in value)
                if shape.is_array
                else _as_kio(shape, value)
            )
        fields[shape.name] = value
    return entity(**fields)


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
def test_messages_are_written_as_by_kio(load: Callable[[], Any], data: st.DataObject) -> None:
    entity = load()
    values = data.draw(values_of(entity))
    expected = io.BytesIO()
    entity_writer(entity)(expected, as_entity(entity, values))
    frame = Frame()
    message_writer(entity)(values, frame)
    assert frame.content() == expected.getvalue()


def test_large_values_are_not_copied() -> None:
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
