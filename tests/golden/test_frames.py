"""Frames as they stand on the wire, byte for byte, and the values they mean."""

from __future__ import annotations

from uuid import UUID

import pytest

from kprod.wire.control import (
    ApiVersionsReply,
    InitProducerIdReply,
    decode_api_versions_response,
    decode_init_producer_id_response,
    encode_api_versions_request,
    encode_init_producer_id_request,
    encode_metadata_request,
)
from kprod.wire.endpoint import BrokerEndpoint
from kprod.wire.framing import FrameReader, encode_request_header, split_response_header
from kprod.wire.produce import (
    PartitionBatch,
    PartitionResponse,
    ProduceResponse,
    decode_produce_response,
    encode_produce_request,
)
from kprod.wire.versions import ApiKey

CLIENT = "kprod"

# One record, value "123", written by a broker of the 0.11 era.
BATCH = bytes.fromhex(
    "00000000000000000000003b00000001020318a2700000000000000000015dff7b063c0000015dff7b063c"
    "ffffffffffffffffffffffffffff0000000112000000010631323300"
)

API_VERSIONS_V3 = "0000001d001200030000000100056b70726f6400066b70726f6406302e312e3000"
API_VERSIONS_V0 = "0000000f001200000000000200056b70726f64"
METADATA_V12 = (
    "000000270003000c0000000300056b70726f64000200000000000000000000000000000000027400010000"
)
METADATA_V13 = "000000140003000d0000000400056b70726f640000000000"
INIT_PRODUCER_ID_V4 = "00000020001600040000000500056b70726f6400007fffffffffffffffffffffffffff00"
PRODUCE_V9 = (
    "0000006a000000090000000900056b70726f640000ffff00007530020274020000000048"
    + BATCH.hex()
    + "000000"
)
PRODUCE_V13 = (
    "000000780000000d0000000a00056b70726f640000ffff0000753002123456789abcdef00123456789abcdef"
    "020000000048" + BATCH.hex() + "000000"
)
FIND_COORDINATOR_V4 = "00000016000a00040000000600056b70726f6400010203747800"
ADD_PARTITIONS_V3 = (
    "00000027001800030000000700056b70726f64000374780000000000000fa0000302027402000000000000"
)
END_TXN_V5 = "0000001f001a00050000000800056b70726f64000374780000000000000fa000030100"
ADD_OFFSETS_V3 = "00000020001900030000000b00056b70726f64000374780000000000000fa00003026700"
TXN_OFFSET_COMMIT_V3 = (
    "0000003d001c00030000000c00056b70726f640003747802670000000000000fa00003ffffffff010002027402"
    "00000000000000000000002affffffff01000000"
)

API_VERSIONS_V3_RESPONSE = (
    "00000300000003000d0000120000000400000000000201080000000000000005021a02147472616e7361637469"
    "6f6e2e76657273696f6e0002000200"
)
MOCK_API_VERSIONS_RESPONSE = "00230100120000000200000000"
PRODUCE_V10_RESPONSE = (
    "02027402000000000006ffffffffffffffffffffffffffffffffffffffffffffffff0100010009000000020000"
    "000700000000000001000e0200000002036832000023850000"
)
PRODUCE_V8_RESPONSE = (
    "00000001000174000000010000000000000000000000000064ffffffffffffffff000000000000000000000000"
    "ffff00000000"
)
MOCK_PRODUCE_V9_RESPONSE = (
    "020374310200000000 0000 000000000000002a 00000000000004d2 0000000000000000 01 00 00 00"
    "00000000 00"
)
INIT_PRODUCER_ID_V4_RESPONSE = "0000000000000000000000000fa0000000"
END_TXN_V5_RESPONSE = "0000000000000000000000000fa0000400"


def body(text: str) -> memoryview:
    return memoryview(bytes.fromhex(text))


def produce(version: int, correlation_id: int, topic_id: UUID | None) -> str:
    pieces = encode_produce_request(
        version,
        correlation_id,
        CLIENT,
        acks=-1,
        timeout_ms=30_000,
        batches=[PartitionBatch("t", topic_id, 0, memoryview(BATCH))],
    )
    return b"".join(pieces).hex()


def test_api_versions_requests() -> None:
    assert encode_api_versions_request(3, 1, CLIENT, "0.1.0").hex() == API_VERSIONS_V3
    assert encode_api_versions_request(0, 2, CLIENT).hex() == API_VERSIONS_V0


def test_metadata_requests() -> None:
    assert encode_metadata_request(12, 3, CLIENT, ["t"], True).hex() == METADATA_V12
    assert encode_metadata_request(13, 4, CLIENT, None, False).hex() == METADATA_V13


def test_init_producer_id_request() -> None:
    assert encode_init_producer_id_request(4, 5, CLIENT).hex() == INIT_PRODUCER_ID_V4


def test_produce_requests() -> None:
    assert produce(9, 9, None) == PRODUCE_V9
    topic_id = UUID("12345678-9abc-def0-0123-456789abcdef")
    assert produce(13, 10, topic_id) == PRODUCE_V13


@pytest.mark.parametrize(
    ("api", "version", "correlation_id", "frame"),
    [
        (ApiKey.API_VERSIONS, 3, 1, API_VERSIONS_V3),
        (ApiKey.API_VERSIONS, 0, 2, API_VERSIONS_V0),
        (ApiKey.METADATA, 12, 3, METADATA_V12),
        (ApiKey.METADATA, 13, 4, METADATA_V13),
        (ApiKey.INIT_PRODUCER_ID, 4, 5, INIT_PRODUCER_ID_V4),
        (ApiKey.FIND_COORDINATOR, 4, 6, FIND_COORDINATOR_V4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3, 7, ADD_PARTITIONS_V3),
        (ApiKey.END_TXN, 5, 8, END_TXN_V5),
        (ApiKey.PRODUCE, 9, 9, PRODUCE_V9),
        (ApiKey.PRODUCE, 13, 10, PRODUCE_V13),
        (ApiKey.ADD_OFFSETS_TO_TXN, 3, 11, ADD_OFFSETS_V3),
        (ApiKey.TXN_OFFSET_COMMIT, 3, 12, TXN_OFFSET_COMMIT_V3),
    ],
)
def test_every_frame_starts_with_its_header(
    api: ApiKey, version: int, correlation_id: int, frame: str
) -> None:
    [message] = FrameReader().feed(bytes.fromhex(frame))
    header = encode_request_header(api, version, correlation_id, CLIENT)
    assert bytes(message[: len(header)]) == header


def test_api_versions_response() -> None:
    reply = decode_api_versions_response(3, body(API_VERSIONS_V3_RESPONSE))
    assert reply == ApiVersionsReply(0, {0: (3, 13), 18: (0, 4)}, 0)


def test_api_versions_response_of_the_mock_broker_reads_as_fall_back_to_0() -> None:
    reply = decode_api_versions_response(3, body(MOCK_API_VERSIONS_RESPONSE))
    assert reply == ApiVersionsReply(35, {}, 0)


def test_produce_response_with_the_new_leader() -> None:
    reply = decode_produce_response(10, body(PRODUCE_V10_RESPONSE))
    refused = PartitionResponse("t", None, 0, 6, -1, -1, -1, [], None, 2, 7)
    assert reply == ProduceResponse([refused], 0, [BrokerEndpoint(2, "h2", 9093, None)])


def test_produce_response_in_the_classic_encoding() -> None:
    reply = decode_produce_response(8, body(PRODUCE_V8_RESPONSE))
    stored = PartitionResponse("t", None, 0, 0, 100, -1, 0, [], None, -1, -1)
    assert reply == ProduceResponse([stored], 0, [])


def test_produce_response_of_the_mock_broker() -> None:
    reply = decode_produce_response(9, body(MOCK_PRODUCE_V9_RESPONSE))
    stored = PartitionResponse("t1", None, 0, 0, 42, 1234, 0, [], None, -1, -1)
    assert reply == ProduceResponse([stored], 0, [])


def test_init_producer_id_response() -> None:
    reply = decode_init_producer_id_response(4, body(INIT_PRODUCER_ID_V4_RESPONSE))
    assert reply == InitProducerIdReply(0, 4000, 0, 0)


def test_response_headers() -> None:
    """Flexible responses carry a tag section after the correlation id, ApiVersions never does."""
    for api, version, header, text in (
        (ApiKey.API_VERSIONS, 3, "00000001", API_VERSIONS_V3_RESPONSE),
        (ApiKey.PRODUCE, 8, "00000001", PRODUCE_V8_RESPONSE),
        (ApiKey.PRODUCE, 10, "0000000100", PRODUCE_V10_RESPONSE),
        (ApiKey.END_TXN, 5, "0000000100", END_TXN_V5_RESPONSE),
    ):
        correlation_id, rest = split_response_header(api, version, body(header + text))
        assert (correlation_id, rest.hex()) == (1, text)
