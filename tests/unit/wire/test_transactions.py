"""The requests to coordinators as kio reads them, and its answers as kprod does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kprod.errors import ProtocolError
from kprod.wire import transactions as wire
from kprod.wire.transactions import (
    CommittedOffset,
    OffsetsReply,
    decode_offset_fetch_response,
    encode_offset_fetch_request,
)
from kprod.wire.versions import SUPPORTED, ApiKey
from tests.support.kio_messages import read_request, response

PRODUCER = (4000, 3)


def each(*apis: ApiKey) -> pytest.MarkDecorator:
    """Every version of these APIs that kprod uses."""
    found = [
        (api, version)
        for api in apis
        for version in range(SUPPORTED[api][0], SUPPORTED[api][1] + 1)
    ]
    return pytest.mark.parametrize(("api", "version"), found)


def read(api: ApiKey, version: int, frame: bytes) -> Any:
    header, body = read_request(api, version, frame)
    assert (header.correlation_id, header.client_id) == (7, "me")
    return body


@each(ApiKey.FIND_COORDINATOR)
def test_find_coordinator(api: ApiKey, version: int) -> None:
    frame = wire.encode_find_coordinator_request(version, 7, "me", "tx", wire.TRANSACTION)
    body = read(api, version, frame)
    assert body.key_type == 1
    assert (body.coordinator_keys if version >= 4 else (body.key,)) == ("tx",)
    told = {"node_id": 2, "host": "h", "port": 9092, "error_message": None}
    several = [{"key": "tx", **told}]  # from version 4 on
    answer = response(api, version, throttle_time=250, coordinators=several, **told)
    reply = wire.decode_find_coordinator_response(version, answer)
    assert reply == wire.CoordinatorReply(0, None, 2, 250)


def test_an_answer_for_two_coordinators_makes_no_sense() -> None:
    both = [{"key": key, "node_id": 1, "host": "h", "port": 1} for key in "ab"]
    answer = response(ApiKey.FIND_COORDINATOR, 4, coordinators=both)
    with pytest.raises(ProtocolError, match="2 keys for one"):
        wire.decode_find_coordinator_response(4, answer)


@each(ApiKey.ADD_PARTITIONS_TO_TXN)
def test_add_partitions(api: ApiKey, version: int) -> None:
    frame = wire.encode_add_partitions_request(
        version, 7, "me", "tx", PRODUCER, {"a": [0, 2], "b": [1]}
    )
    body = read(api, version, frame)
    assert body.v3_and_below_transactional_id == "tx"
    assert (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch) == PRODUCER
    asked = {topic.name: topic.partitions for topic in body.v3_and_below_topics}
    assert asked == {"a": (0, 2), "b": (1,)}
    results = [
        {"partition_index": number, "partition_error_code": code}
        for number, code in ((0, 0), (2, 29))
    ]
    topics = [{"name": "a", "results_by_partition": results}]
    answer = response(api, version, throttle_time=250, results_by_topic_v3_and_below=topics)
    reply = wire.decode_add_partitions_response(version, answer)
    assert reply == wire.PartitionsReply([("a", 0, 0), ("a", 2, 29)], 250)


@each(ApiKey.ADD_OFFSETS_TO_TXN)
def test_add_offsets(api: ApiKey, version: int) -> None:
    frame = wire.encode_add_offsets_request(version, 7, "me", "tx", PRODUCER, "group")
    body = read(api, version, frame)
    assert (body.transactional_id, body.group_id) == ("tx", "group")
    assert (body.producer_id, body.producer_epoch) == PRODUCER
    answer = response(api, version, throttle_time=250, error_code=51)
    assert wire.decode_add_offsets_response(version, answer) == wire.CodeReply(51, 250)


@each(ApiKey.TXN_OFFSET_COMMIT)
def test_txn_offset_commit(api: ApiKey, version: int) -> None:
    member = wire.GroupMetadata("group", 4, "member", "instance")
    offsets = [wire.OffsetToCommit("a", 0, 5, 2, "note"), wire.OffsetToCommit("a", 1, 2**40)]
    frame = wire.encode_txn_offset_commit_request(version, 7, "me", "tx", PRODUCER, member, offsets)
    body = read(api, version, frame)
    assert (body.transactional_id, body.group_id) == ("tx", "group")
    if version >= 3:
        who = (body.generation_id, body.member_id, body.group_instance_id)
        assert who == (4, "member", "instance")
    (topic,) = body.topics
    parts = topic.partitions
    found = [(p.partition_index, p.committed_offset, p.committed_metadata) for p in parts]
    assert found == [(0, 5, "note"), (1, 2**40, "")]
    if version >= 2:
        assert [p.committed_leader_epoch for p in topic.partitions] == [2, -1]
    told = [{"name": "a", "partitions": [{"partition_index": 0}]}]
    answer = response(api, version, throttle_time=250, topics=told)
    reply = wire.decode_txn_offset_commit_response(version, answer)
    assert reply == wire.PartitionsReply([("a", 0, 0)], 250)


@each(ApiKey.OFFSET_FETCH)
def test_offset_fetch(api: ApiKey, version: int) -> None:
    frame = encode_offset_fetch_request(version, 7, "me", "group", {"a": [0, 2], "b": [1]})
    body = read(api, version, frame)
    assert (body.group_id, body.require_stable) == ("group", True)
    assert {t.name: t.partition_indexes for t in body.topics} == {"a": (0, 2), "b": (1,)}
    note = "x" * 3_000 + "\n"
    parts = [
        {"partition_index": 0, "committed_offset": 5, "metadata": note},
        {"partition_index": 2, "committed_offset": -1, "metadata": None, "error_code": 88},
    ]
    told = [{"name": "a", "partitions": parts}]
    answer = response(api, version, throttle_time=250, topics=told)
    reply = decode_offset_fetch_response(version, answer)
    # The metadata is for programs: nothing of it is cut, or made fit for a log.
    whole = CommittedOffset("a", 0, 5, note.encode(), 0)
    assert reply == OffsetsReply([whole, CommittedOffset("a", 2, -1, b"", 88)], 0, 250)


@pytest.mark.parametrize("committed", [True, False])
@each(ApiKey.END_TXN)
def test_end_txn(api: ApiKey, version: int, committed: bool) -> None:
    frame = wire.encode_end_txn_request(version, 7, "me", "tx", PRODUCER, committed)
    body = read(api, version, frame)
    assert (body.transactional_id, body.committed) == ("tx", committed)
    assert (body.producer_id, body.producer_epoch) == PRODUCER
    answer = response(api, version, throttle_time=250, producer_id=4000, producer_epoch=4)
    reply = wire.decode_end_txn_response(version, answer)
    assert reply == wire.EndTxnReply(0, (4000, 4) if version >= 5 else None, 250)


DECODERS: list[tuple[ApiKey, Callable[[int, memoryview], Any]]] = [
    (ApiKey.FIND_COORDINATOR, wire.decode_find_coordinator_response),
    (ApiKey.ADD_PARTITIONS_TO_TXN, wire.decode_add_partitions_response),
    (ApiKey.ADD_OFFSETS_TO_TXN, wire.decode_add_offsets_response),
    (ApiKey.TXN_OFFSET_COMMIT, wire.decode_txn_offset_commit_response),
    (ApiKey.END_TXN, wire.decode_end_txn_response),
    (ApiKey.OFFSET_FETCH, decode_offset_fetch_response),
]


@pytest.mark.parametrize(("api", "decode"), DECODERS)
def test_half_an_answer_is_none(api: ApiKey, decode: Callable[[int, memoryview], Any]) -> None:
    for version in range(SUPPORTED[api][0], SUPPORTED[api][1] + 1):
        with pytest.raises(ProtocolError, match=api.name):
            decode(version, memoryview(b"\x00\x00\x00"))
