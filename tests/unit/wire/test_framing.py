from __future__ import annotations

import tracemalloc

import pytest

from kprod.errors import ProtocolError
from kprod.wire import framing
from kprod.wire.framing import FrameReader, encode_request_header, split_response_header
from kprod.wire.versions import ApiKey


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


def test_the_limits_themselves_are_allowed() -> None:
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
def test_another_protocol_is_recognised(greeting: bytes, hint: str) -> None:
    with pytest.raises(ProtocolError, match=hint):
        FrameReader().feed(greeting)


@pytest.mark.parametrize(("size", "step"), [(10_000, 1), (200_000, 1000), (200_000, 32_768)])
def test_an_unfinished_frame_takes_at_most_twice_what_has_come(size: int, step: int) -> None:
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


def test_a_client_id_no_broker_takes_is_refused() -> None:
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
