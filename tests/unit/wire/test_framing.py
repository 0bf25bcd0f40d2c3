"""Frames, primitive fields, version negotiation and damaged responses."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from kprod.errors import ProtocolError, UnsupportedVersionError
from kprod.wire import framing
from kprod.wire.framing import FrameReader, encode_request_header, split_response_header
from kprod.wire.primitives import WireReader
from kprod.wire.versions import ApiKey, ApiVersions
from tests.unit.wire.messages import EVERY, EXCHANGES, answer


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def fed(reader: FrameReader, *chunks: bytes) -> list[bytes]:
    return [bytes(found) for chunk in chunks for found in reader.feed(chunk)]


def test_a_frame_within_one_chunk_shares_its_memory() -> None:
    chunk = frame(b"payload")
    [found] = FrameReader().feed(chunk)
    assert found.obj is chunk


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3, 1001, 2**31 - 1])
@pytest.mark.parametrize("step", [1, 4])
def test_an_impossible_size_ends_the_stream(size: int, step: int) -> None:
    reader = FrameReader(max_frame_bytes=1000)
    prefix = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        fed(reader, *(prefix[at : at + step] for at in range(0, 4, step)))


def test_frames_of_the_minimum_and_maximum_size_are_allowed() -> None:
    assert fed(FrameReader(max_frame_bytes=1000), frame(b"1234"), frame(bytes(1000)))


@pytest.mark.parametrize(
    ("greeting", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x32", "TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"220 mail.example.org ESMTP\r\n", "is this a Kafka broker"),
    ],
)
def test_the_error_names_the_protocol_of_the_peer(greeting: bytes, hint: str) -> None:
    with pytest.raises(ProtocolError, match=hint):
        FrameReader().feed(greeting)


@pytest.mark.parametrize(("size", "step"), [(10_000, 1), (200_000, 1000), (200_000, 32_768)])
def test_an_incomplete_frame_takes_at_most_twice_the_received_bytes(size: int, step: int) -> None:
    reader, arrived = FrameReader(), 0
    of_frames = [tracemalloc.Filter(inclusive=True, filename_pattern=framing.__file__)]
    stream = frame(bytes(size))[:-1]
    tracemalloc.start()
    try:
        for at in range(0, len(stream), step):
            arrived += len(stream[at : at + step])
            assert reader.feed(stream[at : at + step]) == []
            if at % 20_000 < step:
                held = tracemalloc.take_snapshot().filter_traces(of_frames).traces
                assert sum(trace.size for trace in held) < 2 * arrived + 1000
    finally:
        tracemalloc.stop()
    [found] = reader.feed(b"!")
    assert (len(found), bytes(found[-2:])) == (size, b"\0!")


def test_a_client_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="40000 bytes"):
        encode_request_header(ApiKey.PRODUCE, 8, 1, "x" * 40_000)


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (ApiKey.PRODUCE, 9, b"body"),
        (ApiKey.PRODUCE, 8, b"\x01\x05\x02abbody"),
        (ApiKey.API_VERSIONS, 3, b"\x01\x05\x02abbody"),
    ],
)
def test_response_headers_skip_tags_of_flexible_versions(
    api: ApiKey, version: int, body: bytes
) -> None:
    response = memoryview(b"\xff\xff\xff\xfe\x01\x05\x02abbody")
    correlation_id, found = split_response_header(api, version, response)
    assert (correlation_id, bytes(found)) == (-2, body)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\0\0\0\1\xff"])
def test_a_response_shorter_than_its_header_is_malformed(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="PRODUCE v9 response header"):
        split_response_header(ApiKey.PRODUCE, 9, memoryview(data))


# Fields -------------------------------------------------------------------------------------------


def classic(data: bytes) -> WireReader:
    return WireReader(memoryview(data), "a message", flexible=False)


def flexible(data: bytes) -> WireReader:
    return WireReader(memoryview(data), "a message", flexible=True)


def test_a_tagged_field_ends_where_its_size_says() -> None:
    [(_, field)] = flexible(b"\x01\x00\x02\x00\x00\x00\x00").tags()
    with pytest.raises(ProtocolError):
        field.int32()


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (lambda data: classic(data).int32(), b"\x00\x00\x00"),
        (lambda data: classic(data).skip(1), b""),
        (lambda data: flexible(data).uvarint(), b"\x80"),
        (lambda data: flexible(data).uvarint(), b"\x80\x80\x80\x80\x80\x01"),
        (lambda data: flexible(data).uvarint(), b"\xff\xff\xff\xff\x1f"),
        (lambda data: classic(data).string(), b"\xff\xff"),
        (lambda data: classic(data).string(), b"\xff\xfe"),
        (lambda data: classic(data).string(), b"\x7f\xffabc"),
        (lambda data: classic(data).string(), b"\x00\x01\xff"),
        (lambda data: flexible(data).string(), b"\x00"),
        (lambda data: flexible(data).string(), b"\x05abc"),
        (lambda data: flexible(data).string(), b"\xff\xff\xff\xff\x0fabc"),
        (lambda data: flexible(data).string(), b"\x03\xc3\x28"),
        (lambda data: classic(data).array(1), b"\xff\xff\xff\xff"),
        (lambda data: classic(data).array(1), b"\xff\xff\xff\xfe"),
        (lambda data: classic(data).array(1), b"\x7f\xff\xff\xff" + bytes(100)),
        (lambda data: classic(data).array(5), b"\x00\x00\x00\x02" + bytes(9)),
        (lambda data: flexible(data).array(1), b"\x00"),
        (lambda data: flexible(data).array(1), b"\xff\xff\xff\xff\x0f" + bytes(100)),
        (lambda data: flexible(data).skip_tags(), b"\x01\x00\x05ab"),
        (lambda data: flexible(data).skip_tags(), b"\x02\x03\x00\x03\x00"),
        (lambda data: flexible(data).skip_tags(), b"\x02\x03\x00\x02\x00"),
        (lambda data: flexible(data).skip_tags(), b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_invalid_fields_are_a_protocol_error(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^a message: .* at byte \d+$"):
        read(data)


# Versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "offered", "cap", "picked"),
    [
        (ApiKey.PRODUCE, (3, 13), None, 13),
        (ApiKey.PRODUCE, (0, 99), None, 13),
        (ApiKey.PRODUCE, (0, 8), None, 8),
        (ApiKey.PRODUCE, (0, 3), None, 3),
        (ApiKey.PRODUCE, (13, 20), None, 13),
        (ApiKey.PRODUCE, (3, 13), 12, 12),
        (ApiKey.PRODUCE, (3, 13), 99, 13),
        # Some brokers that offer version 5 send unreadable responses.
        (ApiKey.PRODUCE, (0, 5), None, 4),
        (ApiKey.PRODUCE, (0, 13), 5, 4),
        (ApiKey.METADATA, (0, 5), None, 5),
    ],
)
def test_the_newest_shared_version_is_picked(
    api: ApiKey, offered: tuple[int, int], cap: int | None, picked: int
) -> None:
    assert ApiVersions({api: offered}).pick(api, cap) == picked


PRODUCE = ApiKey.PRODUCE


@pytest.mark.parametrize(
    ("offered", "cap", "message"),
    [
        ({PRODUCE: (0, 2)}, None, r"PRODUCE.*0-2.*3-13"),
        ({PRODUCE: (14, 20)}, None, r"PRODUCE.*14-20.*3-13"),
        ({PRODUCE: (9, 3)}, None, r"PRODUCE.*9-3.*3-13"),
        ({PRODUCE: (-5, -1)}, None, r"PRODUCE.*-5--1.*3-13"),
        ({PRODUCE: (32767, 32767)}, None, r"PRODUCE.*32767-32767.*3-13"),
        ({PRODUCE: (5, 5)}, None, r"PRODUCE.*5-5.*3-13"),
        ({PRODUCE: (7, 13)}, 4, "at most 4"),
        ({}, None, r"PRODUCE.*does not offer it.*3-13"),
    ],
)
def test_the_error_without_a_shared_version_names_both_ranges(
    offered: dict[int, tuple[int, int]], cap: int | None, message: str
) -> None:
    with pytest.raises(UnsupportedVersionError, match=message):
        ApiVersions(offered).pick(PRODUCE, cap)


# Damaged responses raise ProtocolError or give some value, nothing else ---------------------------


EDGE_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF)
"""Zero, null, the largest int8, a varint that continues, a negative number."""


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_a_changed_byte_gives_a_value_or_a_protocol_error(api: ApiKey, version: int) -> None:
    body = answer(api, version)
    damaged = bytearray(body)
    for at, byte in enumerate(body):
        for value in EDGE_BYTES:
            damaged[at] = value
            with suppress(ProtocolError):
                EXCHANGES[api].decode(version, memoryview(bytes(damaged)))
        damaged[at] = byte


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_every_truncated_response_is_a_protocol_error(api: ApiKey, version: int) -> None:
    body = memoryview(answer(api, version))
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            EXCHANGES[api].decode(version, body[:size])
