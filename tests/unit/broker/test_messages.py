"""Messages as bytes: what we write kio reads, what kio writes we read, and nothing ends us."""

from __future__ import annotations

import resource
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.message_reader import Allowance, message_reader
from kprod.broker.protocol.messages import request_schema
from kprod.errors import ProtocolError
from tests.support.raw_batch import raw_batch
from tests.unit.broker.requests import EVERY_VERSION, REQUESTS

HEADER = {
    "request_api_key": 3,
    "request_api_version": 0,
    "correlation_id": -5,
    "client_id": "ü",
}


def kio_reads(entity: Any, frame: bytes) -> tuple[Any, Any]:
    header, at = entity_reader(entity.__header_schema__)(frame, 0)
    return header, entity_reader(entity)(frame, at)[0]


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: str(api.name))
def test_requests_mean_to_us_what_they_mean_to_kio(api: ApiKey) -> None:
    for version in (version for each, version in EVERY_VERSION if each is api):
        frame = request_schema(api, version).encode(HEADER, REQUESTS[api])[4:]
        expected = kio_reads(load_request_schema(api, version), frame)
        assert request_schema(api, version).decode(frame) == expected, version


def test_a_message_cut_off_anywhere_is_malformed() -> None:
    schema = request_schema(ApiKey.PRODUCE, 9)
    frame = schema.encode(HEADER, REQUESTS[ApiKey.PRODUCE])[4:]
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            schema.decode(frame[:cut])
    assert schema.decode(frame + b"more") == schema.decode(frame)


@pytest.mark.parametrize(
    "count", ["7fffffff", "fffffffe", "80000000", "00010000"], ids=lambda count: f"count {count}"
)
def test_counts_are_not_believed(count: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError):
        request_schema(ApiKey.METADATA, 4).decode(bytes(8) + b"\xff\xff" + bytes.fromhex(count))
    with pytest.raises(ProtocolError):
        request_schema(ApiKey.METADATA, 12).decode(bytes(8) + b"\xff\xff\0" + b"\xff" * 4 + b"\x0f")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 50_000


@pytest.mark.parametrize(
    ("tags", "fine"),
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
def test_tagged_fields(tags: str, fine: bool) -> None:
    entity = load_request_schema(ApiKey.FETCH, 12)
    body = bytes(25) + b"\1\1\1" + bytes.fromhex(tags)
    data = memoryview(body)
    if fine:
        assert message_reader(entity)(data, 0, Allowance(100))[1] == len(body)
    else:
        with pytest.raises((ProtocolError, IndexError)):
            message_reader(entity)(data, 0, Allowance(100))


def test_records_are_views_of_the_frame() -> None:
    schema = request_schema(ApiKey.PRODUCE, 9)
    frame = schema.encode(HEADER, REQUESTS[ApiKey.PRODUCE])[4:]
    part = schema.decode(frame)[1].topic_data[0].partition_data[0]
    assert part.records.obj is frame
    assert part.records == raw_batch([b"a", b"b"])


def test_a_name_that_is_not_text_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        request_schema(ApiKey.METADATA, 4).decode(bytes(8) + b"\xff\xff\0\0\0\1\0\2\xff\xfe\1")
