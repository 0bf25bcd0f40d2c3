"""kio reads what kprod writes; frames do not depend on chunks."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kprod.wire.control import (
    encode_api_versions_request,
    encode_init_producer_id_request,
    encode_metadata_request,
)
from kprod.wire.framing import FrameReader
from kprod.wire.produce import Topics, encode_produce_request
from kprod.wire.versions import SUPPORTED, ApiKey
from tests.support.kio_messages import read_request

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
ids = st.binary(min_size=16, max_size=16).filter(any)


def versions(api: ApiKey) -> st.SearchStrategy[int]:
    first, last = SUPPORTED[api]
    return st.integers(first, last)


pieces = st.lists(st.binary(max_size=300).map(lambda part: memoryview(part)[:]), max_size=3)
partitions = st.lists(st.tuples(int32, pieces), max_size=4)
requests = st.one_of(
    st.tuples(st.integers(3, 12), st.dictionaries(names, partitions, max_size=4)),
    st.tuples(st.just(13), st.dictionaries(ids, partitions, max_size=4)),
)


@given(requests, int32, text, int16, int32, st.none() | text)
def test_kio_reads_produce_requests(
    request: tuple[int, Topics],
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
) -> None:
    version, topics = request
    frame = encode_produce_request(
        version, correlation_id, client_id, acks, timeout_ms, topics, transactional_id
    )
    body = read(ApiKey.PRODUCE, version, correlation_id, client_id, b"".join(frame))
    assert (body.acks, body.transactional_id) == (acks, transactional_id)
    assert milliseconds(body.timeout) == timeout_ms
    found = [
        (topic_key(version, topic), [(part.index, part.records) for part in topic.partition_data])
        for topic in body.topic_data
    ]
    assert found == [
        (name, [(partition, b"".join(records)) for partition, records in batches])
        for name, batches in topics.items()
    ]


def topic_key(version: int, topic: Any) -> Any:
    return topic.topic_id.bytes if version >= 13 else topic.name


@given(
    versions(ApiKey.METADATA), int32, text, st.none() | st.lists(names, max_size=5), st.booleans()
)
def test_kio_reads_metadata_requests(
    version: int, correlation_id: int, client_id: str, topics: list[str] | None, auto: bool
) -> None:
    frame = encode_metadata_request(version, correlation_id, client_id, topics, auto)
    body = read(ApiKey.METADATA, version, correlation_id, client_id, frame)
    found = None if body.topics is None else [topic.name for topic in body.topics]
    assert (found, body.allow_auto_topic_creation) == (topics, auto)


identities = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | text,
        "transaction_timeout_ms": st.integers(0, 2**31 - 1),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
    }
)


@given(versions(ApiKey.INIT_PRODUCER_ID), int32, text, identities)
def test_kio_reads_init_producer_id_requests(
    version: int, correlation_id: int, client_id: str, asked: dict[str, Any]
) -> None:
    frame = encode_init_producer_id_request(version, correlation_id, client_id, **asked)
    body = read(ApiKey.INIT_PRODUCER_ID, version, correlation_id, client_id, frame)
    assert body.transactional_id == asked["transactional_id"]
    assert milliseconds(body.transaction_timeout) == asked["transaction_timeout_ms"]
    if version >= 3:
        found = (body.producer_id, body.producer_epoch)
        assert found == (asked["producer_id"], asked["producer_epoch"])


@given(versions(ApiKey.API_VERSIONS), int32, text)
def test_kio_reads_api_versions_requests(version: int, correlation_id: int, client_id: str) -> None:
    frame = encode_api_versions_request(version, correlation_id, client_id, ("kprod", "1.2"))
    body = read(ApiKey.API_VERSIONS, version, correlation_id, client_id, frame)
    if version >= 3:
        assert (body.client_software_name, body.client_software_version) == ("kprod", "1.2")


def read(api: ApiKey, version: int, correlation_id: int, client: str, frame: bytes) -> Any:
    header, body = read_request(api, version, frame)
    assert (header.request_api_key, header.request_api_version) == (api, version)
    assert (header.correlation_id, header.client_id) == (correlation_id, client)
    return body


def milliseconds(delta: timedelta) -> int:
    return round(delta.total_seconds() * 1000)


payloads = st.lists(st.binary(min_size=4, max_size=60), max_size=12)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(payloads, st.lists(st.integers(0, 10_000), max_size=30), st.binary(max_size=3))
def test_any_chunking_gives_the_same_frames(
    messages: list[bytes], places: list[int], rest: bytes
) -> None:
    stream = b"".join(len(message).to_bytes(4, "big") + message for message in messages) + rest
    reader = FrameReader()
    found = [frame for chunk in cut(stream, places) for frame in reader.feed(chunk)]
    # Compared last: later chunks must not change earlier frames.
    assert [bytes(frame) for frame in found] == messages
