from __future__ import annotations

from uuid import UUID

import pytest

from kprod.errors import ProtocolError
from kprod.wire.produce import Topics, decode_produce_response, encode_produce_request
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import read_request

RECORDS = [memoryview(bytes([65 + at]) * (at + 1) * 50) for at in range(4)]


def encode(version: int, topics: Topics) -> list[bytes | memoryview]:
    return encode_produce_request(version, 1, "kprod", -1, 30_000, topics)


def names(version: int) -> tuple[str | bytes, str | bytes]:
    """Two topics, by name or by id."""
    return (UUID(int=1).bytes, UUID(int=2).bytes) if version >= 13 else ("a", "b")


@pytest.mark.parametrize("version", range(3, 14))
def test_record_bytes_are_not_copied(version: int) -> None:
    a, b = names(version)
    pieces = encode(version, {a: [(0, RECORDS[:1])], b: [(1, RECORDS[1:2]), (2, RECORDS[2:])]})
    views = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert len(views) == len(RECORDS)
    assert all(sent is given for sent, given in zip(views, RECORDS, strict=True))


def test_topics_are_named_by_id_from_version_13_on() -> None:
    with pytest.raises(TypeError, match="str"):
        encode(13, {"t": [(0, RECORDS[:1])]})
    with pytest.raises(TypeError, match="bytes"):
        encode(12, {UUID(int=1).bytes: [(0, RECORDS[:1])]})


@pytest.mark.parametrize("version", [3, 9])
def test_a_topic_name_that_is_too_long_is_refused(version: int) -> None:
    encode(version, {"t" * 32_767: [(0, RECORDS[:1])]})
    with pytest.raises(ValueError, match="32768 bytes; at most 32767"):
        encode(version, {"t" * 32_768: [(0, RECORDS[:1])]})


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 2**21 - 2, 2**21 - 1])
def test_record_lengths_are_right_where_the_varint_grows(size: int) -> None:
    joined = b"".join(encode(9, {"t": [(0, [memoryview(b"r" * size)])]}))
    _, body = read_request(ApiKey.PRODUCE, 9, joined)
    assert body.topic_data[0].partition_data[0].records == b"r" * size


def test_unknown_tags_and_trailing_bytes_are_ignored() -> None:
    partition = bytes(4 + 2 + 8 * 3) + b"\x01" + b"\x00" + b"\x01\x05\x03xyz"
    body = b"\x02\x02t\x02" + partition + b"\x01\x09\x00" + bytes(4) + b"\x01\x01\x01!" + b"?"
    results, _, brokers = decode_produce_response(10, memoryview(body))
    assert [(found.topic, found.leader_id) for found in results] == [("t", -1)]
    assert brokers == []


@pytest.mark.parametrize("hint", ["00 04 00000002", "00 08 00000002 00000007", "00 00"])
def test_a_leader_hint_that_is_cut_short_is_malformed(hint: str) -> None:
    result = bytes(4 + 2 + 8 * 3) + b"\x01" + b"\x00" + b"\x01" + bytes.fromhex(hint)
    body = b"\x02\x02t\x02" + result + b"\x00" + bytes(4) + b"\x00"
    with pytest.raises(ProtocolError):
        decode_produce_response(10, memoryview(body))


def test_a_count_beyond_the_bytes_left_is_refused_at_once() -> None:
    body = b"\x7f\xff\xff\xff" + bytes(200)
    with pytest.raises(ProtocolError, match="PRODUCE v3 response: an array of 2147483647 items"):
        decode_produce_response(3, memoryview(body))
