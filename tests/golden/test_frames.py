"""Frames as they stand on the wire, byte for byte, and the values they mean."""

from __future__ import annotations

from uuid import UUID

from kprod.types import Broker
from kprod.wire.control import (
    ApiVersionsReply,
    InitProducerIdReply,
    decode_api_versions_response,
    decode_init_producer_id_response,
    encode_api_versions_request,
    encode_init_producer_id_request,
    encode_metadata_request,
)
from kprod.wire.produce import (
    Topics,
    decode_produce_response,
    encode_produce_request,
)
from kprod_ext import PartitionResponse
from tests.golden import frames as golden

CLIENT = "kprod"
BATCH = golden.BATCH


def body(text: str) -> memoryview:
    return memoryview(bytes.fromhex(text))


def produce(version: int, correlation_id: int, topic_id: bytes | None) -> str:
    topics: Topics = {topic_id or "t": [(0, [memoryview(BATCH)])]}
    return b"".join(
        encode_produce_request(version, correlation_id, CLIENT, -1, 30_000, topics)
    ).hex()


def test_api_versions_requests() -> None:
    assert (
        encode_api_versions_request(3, 1, CLIENT, ("kprod", "0.1.0")).hex()
        == golden.API_VERSIONS_V3
    )
    assert encode_api_versions_request(0, 2, CLIENT).hex() == golden.API_VERSIONS_V0


def test_metadata_requests() -> None:
    assert encode_metadata_request(12, 3, CLIENT, ["t"], True).hex() == golden.METADATA_V12
    assert encode_metadata_request(13, 4, CLIENT, None, False).hex() == golden.METADATA_V13


def test_init_producer_id_request() -> None:
    assert encode_init_producer_id_request(4, 5, CLIENT).hex() == golden.INIT_PRODUCER_ID_V4


def test_produce_requests() -> None:
    assert produce(9, 9, None) == golden.PRODUCE_V9
    topic_id = UUID("12345678-9abc-def0-0123-456789abcdef").bytes
    assert produce(13, 10, topic_id) == golden.PRODUCE_V13


def test_api_versions_response() -> None:
    reply = decode_api_versions_response(3, body(golden.API_VERSIONS_V3_RESPONSE))
    assert reply == ApiVersionsReply(
        0, {0: (3, 13), 18: (0, 4)}, 0, {"transaction.version": 2}, features_epoch=5
    )


def test_api_versions_response_of_the_mock_broker_reads_as_fall_back_to_0() -> None:
    reply = decode_api_versions_response(3, body(golden.MOCK_API_VERSIONS_RESPONSE))
    assert reply == ApiVersionsReply(35, {}, 0)


def test_produce_response_with_the_new_leader() -> None:
    reply = decode_produce_response(10, body(golden.PRODUCE_V10_RESPONSE))
    refused = PartitionResponse("t", None, 0, 6, -1, -1, -1, [], None, 2, 7)
    assert reply == ([refused], 0, [Broker(2, "h2", 9093, None)])


def test_produce_response_in_the_classic_encoding() -> None:
    reply = decode_produce_response(8, body(golden.PRODUCE_V8_RESPONSE))
    stored = PartitionResponse("t", None, 0, 0, 100, -1, 0, [], None, -1, -1)
    assert reply == ([stored], 0, [])


def test_produce_response_of_the_mock_broker() -> None:
    reply = decode_produce_response(9, body(golden.MOCK_PRODUCE_V9_RESPONSE))
    stored = PartitionResponse("t1", None, 0, 0, 42, 1234, 0, [], None, -1, -1)
    assert reply == ([stored], 0, [])


def test_init_producer_id_response() -> None:
    reply = decode_init_producer_id_response(4, body(golden.INIT_PRODUCER_ID_V4_RESPONSE))
    assert reply == InitProducerIdReply(0, 4000, 0, 0)
