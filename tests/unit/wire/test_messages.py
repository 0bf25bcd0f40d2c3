"""Requests read by kio, responses written by kio, and unusual responses."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.errors import ProtocolError
from kprod.wire import control, telemetry, transactions
from kprod.wire.control import PartitionReplies, PartitionReply, TopicReply
from kprod.wire.versions import ApiKey
from tests.support import hostile_answers
from tests.support.kio_messages import read_request, response
from tests.support.metrics_data import read_metrics, read_resource, read_scope
from tests.unit.wire.messages import CLIENT, EVERY, EXCHANGES, ID, NUMBER, answer, versions


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_responses_of_every_version_are_decoded(api: ApiKey, version: int) -> None:
    for rest in (b"", b"\xff" * 9):
        found = EXCHANGES[api].decode(version, memoryview(answer(api, version) + rest))
        assert found == EXCHANGES[api].expected(version)


@pytest.mark.parametrize(
    "api", [api for api, each in EXCHANGES.items() if each.request], ids=lambda api: str(api.name)
)
def test_requests_of_every_version_are_read_by_kio(api: ApiKey) -> None:
    exchange = EXCHANGES[api]
    assert exchange.encode is not None
    assert exchange.request is not None
    absent: set[str] = set()
    present: set[str] = set()
    for version in versions(api):
        header, body = read_request(api, version, exchange.encode(version))
        assert (header.correlation_id, header.client_id) == (NUMBER, CLIENT)
        compare(body, exchange.request, present, absent)
    assert absent <= present, "fields that no version has"


def compare(body: Any, request: dict[str, Any], present: set[str], absent: set[str]) -> None:
    """Compare the fields that this version of a message has."""
    for name, expected in request.items():
        if not hasattr(body, name):
            absent.add(name)
            continue
        present.add(name)
        found = getattr(body, name)
        if isinstance(expected, list):
            for one, each in zip(found, expected, strict=True):
                compare(one, each, present, absent)
        else:
            assert found == expected, name


def body(text: str) -> memoryview:
    return memoryview(bytes.fromhex(text))


def test_a_metadata_topic_may_have_only_an_id() -> None:
    topic = "006400" + ID.bytes.hex() + "00018000000000"
    reply = control.decode_metadata_response(12, body("000000000100ffffffff02" + topic + "00"))
    assert reply.topics == [TopicReply(100, None, ID.bytes, PartitionReplies())]
    with pytest.raises(ProtocolError, match="null where a string must be"):
        control.decode_metadata_response(11, body("000000000100ffffffff02" + topic + "00"))


def test_metadata_version_13_has_a_top_level_error() -> None:
    reply = control.decode_metadata_response(13, body("000000000100ffffffff01008100"))
    assert reply.error_code == 129


def test_unknown_error_codes_are_decoded() -> None:
    assert control.decode_init_producer_id_response(
        4, body("00000000 7fff ffffffffffffffff ffff 00")
    ) == control.InitProducerIdReply(32767, -1, -1, 0)
    topic = "03e70001 7400000000018000 00000000 ffffffff 00000000 00000000"
    reply = control.decode_metadata_response(
        4, body("00000000 00000000 ffff ffffffff 00000001" + topic)
    )
    assert reply.topics == [
        TopicReply(999, "t", None, PartitionReplies([PartitionReply(-32768, 0, -1, -1)]))
    ]
    assert control.decode_api_versions_response(0, body("03e7 00000000")).error_code == 999


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
def test_api_versions_answered_in_version_0_is_decoded(
    version: int, answer: str, ranges: dict[int, tuple[int, int]]
) -> None:
    reply = control.decode_api_versions_response(version, body(answer))
    assert reply == control.ApiVersionsReply(35, ranges, 0)


def test_the_software_version_has_only_allowed_characters() -> None:
    frame = control.encode_api_versions_request(3, 1, "c")
    name_at = frame.index(b"\x06kprod")
    version = frame[name_at + 7 : -1].decode()
    assert version
    assert set(version) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


def test_a_response_without_results_is_refused() -> None:
    empty = memoryview(bytes(4) + bytes(4))  # throttle time, no topics
    with pytest.raises(ProtocolError, match=r"LIST_OFFSETS v2 response: 0 results for one"):
        EXCHANGES[ApiKey.LIST_OFFSETS].decode(2, empty)


def test_a_fetch_response_without_topics_has_the_top_level_error() -> None:
    """Over its quota, a consumer gets an answer without topics (KIP-219)."""
    for code in (0, 71):
        refused = response(ApiKey.FETCH, 11, throttle_time=900, error_code=code)
        fetched, throttle_ms = EXCHANGES[ApiKey.FETCH].decode(11, refused)
        assert (fetched.error_code, bytes(fetched.records), throttle_ms) == (code, b"", 900)


def test_a_response_with_two_coordinators_is_refused() -> None:
    both = [{"key": key, "node_id": 1, "host": "h", "port": 1} for key in "ab"]
    with pytest.raises(ProtocolError, match="2 keys for one"):
        transactions.decode_find_coordinator_response(
            4, response(ApiKey.FIND_COORDINATOR, 4, coordinators=both)
        )


def test_an_abort_is_encoded_as_not_committed() -> None:
    frame = transactions.encode_end_txn_request(5, NUMBER, CLIENT, "tx", (4000, 3), False)
    assert read_request(ApiKey.END_TXN, 5, frame)[1].committed is False


def test_a_subscription_request_without_an_instance_id_sends_null() -> None:
    frame = telemetry.encode_get_subscriptions_request(0, 7, "me", telemetry.NO_ID)
    _, request = read_request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, frame)
    assert request.client_instance_id is None


def test_a_subscription_with_too_many_metrics_is_refused() -> None:
    head = bytes(6) + ID.bytes + bytes(4) + b"\1" + bytes.fromhex("000003e8 00010000 01")
    names = hostile_answers.array([b"\2o"] * (telemetry.MOST_METRICS + 1))
    with pytest.raises(ProtocolError, match="10001 items where 10000 are the most"):
        telemetry.decode_get_subscriptions_response(0, memoryview(head + names + b"\0"))


def test_opentelemetry_reads_resource_and_scope() -> None:
    resource, scope = {"transactional_id": "ü" * 200, "other": ""}, ("kprod", "1.2")
    written = telemetry.metrics_data(resource, scope, [])
    assert (read_resource(written), read_scope(written)) == (resource, scope)
    assert read_metrics(telemetry.metrics_data({}, scope, [])) == []
