"""Messages as bytes: what we write kio reads, what kio writes we read, and nothing ends us."""

from __future__ import annotations

import contextlib
import resource
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.message_reader import Allowance, message_reader
from kprod.broker.protocol.messages import Message, request_schema, response_schema
from kprod.errors import ProtocolError
from tests.support.raw_batch import raw_batch
from tests.unit.broker.requests import EVERY_VERSION, REQUESTS

HEADER = {
    "request_api_key": 3,
    "request_api_version": 0,
    "correlation_id": -5,
    "client_id": "ü",
}
RESPONSES: dict[ApiKey, Message] = {
    ApiKey.FETCH: {
        "throttle_time": 1234,
        "responses": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition_index": 1,
                        "error_code": 6,
                        "records": raw_batch(),
                        "aborted_transactions": [{"producer_id": 4, "first_offset": 9}],
                        "current_leader": {"leader_id": 3, "leader_epoch": 9},
                    }
                ],
            }
        ],
        "node_endpoints": [{"node_id": 3, "host": "h", "port": 9, "rack": "r"}],
    },
    ApiKey.METADATA: {
        "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
        "cluster_id": "c",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "isr_nodes": [1, 2]}]}],
    },
    ApiKey.PRODUCE: {
        "responses": [
            {
                "name": "t",
                "partition_responses": [
                    {
                        "index": 3,
                        "base_offset": 2**40,
                        "log_append_time": -1,
                        "record_errors": [{"batch_index": 1, "batch_index_error_message": None}],
                        "error_message": "why",
                    }
                ],
            }
        ]
    },
}
RESPONSE_VERSIONS = [(api, version) for api, version in EVERY_VERSION if api in RESPONSES]


def kio_reads(entity: Any, frame: bytes) -> tuple[Any, Any]:
    header, at = entity_reader(entity.__header_schema__)(frame, 0)
    return header, entity_reader(entity)(frame, at)[0]


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: str(api.name))
def test_requests_mean_to_us_what_they_mean_to_kio(api: ApiKey) -> None:
    for version in (version for each, version in EVERY_VERSION if each is api):
        frame = request_schema(api, version).encode(HEADER, REQUESTS[api])[4:]
        expected = kio_reads(load_request_schema(api, version), frame)
        assert request_schema(api, version).decode(frame) == expected, version


@pytest.mark.parametrize(("api", "version"), RESPONSE_VERSIONS, ids=str)
def test_responses_mean_to_us_what_they_mean_to_kio(api: ApiKey, version: int) -> None:
    frame = response_schema(api, version).encode({"correlation_id": 8}, RESPONSES[api])[4:]
    expected = kio_reads(load_response_schema(api, version), frame)
    found = response_schema(api, version).decode(frame)
    assert found[0] == expected[0]
    if api is not ApiKey.PRODUCE:
        assert found[1] == expected[1]
    else:
        (part,) = found[1].responses[0].partition_responses
        assert (part.index, part.base_offset, part.log_append_time) == (3, 2**40, -1)


def test_a_message_cut_off_anywhere_is_malformed() -> None:
    schema = request_schema(ApiKey.PRODUCE, 9)
    frame = schema.encode(HEADER, REQUESTS[ApiKey.PRODUCE])[4:]
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            schema.decode(frame[:cut])
    assert schema.decode(frame + b"more") == schema.decode(frame)


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE])
@given(data=st.data())
def test_damaged_responses_are_malformed_or_something_else(
    api: ApiKey, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from([v for a, v in RESPONSE_VERSIONS if a is api]))
    schema = response_schema(api, version)
    frame = bytearray(schema.encode({"correlation_id": 8}, RESPONSES[api])[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        schema.decode(bytes(frame))


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
    assert part.records == raw_batch()


def test_a_name_that_is_not_text_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        request_schema(ApiKey.METADATA, 4).decode(bytes(8) + b"\xff\xff\0\0\0\1\0\2\xff\xfe\1")


def test_an_unknown_error_code_is_an_unknown_error() -> None:
    schema = response_schema(ApiKey.HEARTBEAT, 0)
    body = schema.decode(bytes(4) + (4321).to_bytes(2, "big"))[1]
    assert body.error_code == -1


def test_the_size_comes_first() -> None:
    frame = BytesIO(request_schema(ApiKey.METADATA, 12).encode(HEADER, {"topics": None}))
    assert int.from_bytes(frame.read(4), "big") == len(frame.read())


def test_only_the_client_id_of_a_request_keeps_its_old_form() -> None:
    """A member of a group has a client id, too."""
    schema = response_schema(ApiKey.DESCRIBE_GROUPS, 5)
    frame = schema.encode(
        {"correlation_id": 1}, {"groups": [{"members": [{"client_id": "c", "client_host": "h"}]}]}
    )[4:]
    expected = kio_reads(load_response_schema(ApiKey.DESCRIBE_GROUPS, 5), frame)
    assert schema.decode(frame) == expected
