from __future__ import annotations

import pytest

from kprod.errors import ProtocolError
from kprod.types import Broker
from kprod.wire.control import (
    ApiVersionsReply,
    InitProducerIdReply,
    MetadataReply,
    PartitionReplies,
    PartitionReply,
    TopicReply,
    decode_api_versions_response,
    decode_init_producer_id_response,
    decode_metadata_response,
    encode_api_versions_request,
)
from tests.support.wire_samples import (
    TOPIC_ID,
    api_versions_response,
    init_producer_id_response,
    metadata_response,
)


def body(text: str) -> memoryview:
    return memoryview(bytes.fromhex(text))


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_responses_of_every_version(version: int) -> None:
    epoch = 9 if version >= 7 else -1
    topic_id = TOPIC_ID.bytes if version >= 10 else None
    led = PartitionReply(0, 0, 1, epoch, (1, 2), (1,))
    partitions = PartitionReplies([led, PartitionReply(5, 1, -1, -1, (1, 2))])
    assert decode_metadata_response(version, metadata_response(version)) == MetadataReply(
        brokers=[Broker(1, "h1", 9092, "r1"), Broker(2, "h2", 9093, None)],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            TopicReply(0, "flights", topic_id, partitions),
            TopicReply(3, "wëather", None, PartitionReplies(), internal=True),
        ],
        throttle_ms=250,
        error_code=0,
    )


def test_metadata_topic_known_by_id_only() -> None:
    topic = "006400" + TOPIC_ID.bytes.hex() + "00018000000000"
    reply = decode_metadata_response(12, body("000000000100ffffffff02" + topic + "00"))
    assert reply.topics == [TopicReply(100, None, TOPIC_ID.bytes, PartitionReplies())]
    with pytest.raises(ProtocolError, match="null where a string must be"):
        decode_metadata_response(11, body("000000000100ffffffff02" + topic + "00"))


def test_metadata_13_tells_an_error_of_its_own() -> None:
    reply = decode_metadata_response(13, body("000000000100ffffffff01008100"))
    assert reply.error_code == 129


def test_error_codes_nobody_knows_are_values() -> None:
    assert decode_init_producer_id_response(
        4, body("00000000 7fff ffffffffffffffff ffff 00")
    ) == InitProducerIdReply(32767, -1, -1, 0)
    topic = "03e70001 7400000000018000 00000000 ffffffff 00000000 00000000"
    reply = decode_metadata_response(4, body("00000000 00000000 ffff ffffffff 00000001" + topic))
    assert reply.topics == [
        TopicReply(999, "t", None, PartitionReplies([PartitionReply(-32768, 0, -1, -1)]))
    ]
    assert decode_api_versions_response(0, body("03e7 00000000")).error_code == 999


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_responses_of_every_version(version: int) -> None:
    reply = decode_init_producer_id_response(version, init_producer_id_response(version))
    assert reply == InitProducerIdReply(0, 4000, 3, 250)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_responses_of_every_version(version: int) -> None:
    ranges = {0: (3, 13), 18: (0, 4), 9999: (1, 2)}
    reply = decode_api_versions_response(version, api_versions_response(version))
    told = ({"transaction.version": 2}, 5) if version >= 3 else ({}, -1)
    assert reply == ApiVersionsReply(0, ranges, 250 if version else 0, *told)


@pytest.mark.parametrize(
    ("answer", "ranges"),
    [
        ("0023 00000001 0012 0000 0003", {18: (0, 3)}),  # brokers from 2.4 on
        ("0023 00000000", {}),  # older ones
        ("0023", {}),
        ("0023 01 0012 0000 0002 00000000", {}),  # librdkafka's mock
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_version_the_broker_does_not_know_is_answered_as_0(
    version: int, answer: str, ranges: dict[int, tuple[int, int]]
) -> None:
    reply = decode_api_versions_response(version, body(answer))
    assert reply == ApiVersionsReply(35, ranges, 0)


def test_the_software_version_fits_what_brokers_accept() -> None:
    frame = encode_api_versions_request(3, 1, "c")
    name_at = frame.index(b"\x06kprod")
    version = frame[name_at + 7 : -1].decode()
    assert version
    assert set(version) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
