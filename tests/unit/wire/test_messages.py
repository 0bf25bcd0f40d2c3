"""What kprod asks, kio reads; what kio answers, kprod reads; and answers that are odd."""

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
def test_answers_of_every_version_whatever_comes_behind_them(api: ApiKey, version: int) -> None:
    for rest in (b"", b"\xff" * 9):
        found = EXCHANGES[api].decode(version, memoryview(answer(api, version) + rest))
        assert found == EXCHANGES[api].told(version)


@pytest.mark.parametrize(
    "api", [api for api, each in EXCHANGES.items() if each.asked], ids=lambda api: str(api.name)
)
def test_requests_of_every_version(api: ApiKey) -> None:
    exchange = EXCHANGES[api]
    assert exchange.encode is not None
    assert exchange.asked is not None
    absent: set[str] = set()
    present: set[str] = set()
    for version in versions(api):
        header, body = read_request(api, version, exchange.encode(version))
        assert (header.correlation_id, header.client_id) == (NUMBER, CLIENT)
        compare(body, exchange.asked, present, absent)
    assert absent <= present, "fields that no version has"


def compare(body: Any, asked: dict[str, Any], present: set[str], absent: set[str]) -> None:
    """Compare the fields that this version of a message has."""
    for name, expected in asked.items():
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


def test_metadata_topic_known_by_id_only() -> None:
    topic = "006400" + ID.bytes.hex() + "00018000000000"
    reply = control.decode_metadata_response(12, body("000000000100ffffffff02" + topic + "00"))
    assert reply.topics == [TopicReply(100, None, ID.bytes, PartitionReplies())]
    with pytest.raises(ProtocolError, match="null where a string must be"):
        control.decode_metadata_response(11, body("000000000100ffffffff02" + topic + "00"))


def test_metadata_13_tells_an_error_of_its_own() -> None:
    reply = control.decode_metadata_response(13, body("000000000100ffffffff01008100"))
    assert reply.error_code == 129


def test_error_codes_nobody_knows_are_values() -> None:
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
def test_a_version_the_broker_does_not_know_is_answered_as_0(
    version: int, answer: str, ranges: dict[int, tuple[int, int]]
) -> None:
    reply = control.decode_api_versions_response(version, body(answer))
    assert reply == control.ApiVersionsReply(35, ranges, 0)


def test_the_software_version_fits_what_brokers_accept() -> None:
    frame = control.encode_api_versions_request(3, 1, "c")
    name_at = frame.index(b"\x06kprod")
    version = frame[name_at + 7 : -1].decode()
    assert version
    assert set(version) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


def test_an_answer_about_nothing_makes_no_sense() -> None:
    empty = memoryview(bytes(4) + bytes(4))  # throttle time, no topics
    with pytest.raises(ProtocolError, match=r"LIST_OFFSETS v2 response: 0 results for one"):
        EXCHANGES[ApiKey.LIST_OFFSETS].decode(2, empty)


def test_a_fetch_of_a_throttled_client_brings_nothing_and_an_error_of_the_whole_is_told() -> None:
    """Over its quota, a consumer gets an answer without topics (KIP-219)."""
    for code in (0, 71):
        refused = response(ApiKey.FETCH, 11, throttle_time=900, error_code=code)
        told, throttle_ms = EXCHANGES[ApiKey.FETCH].decode(11, refused)
        assert (told.error_code, bytes(told.records), throttle_ms) == (code, b"", 900)


def test_an_answer_for_two_coordinators_makes_no_sense() -> None:
    both = [{"key": key, "node_id": 1, "host": "h", "port": 1} for key in "ab"]
    with pytest.raises(ProtocolError, match="2 keys for one"):
        transactions.decode_find_coordinator_response(
            4, response(ApiKey.FIND_COORDINATOR, 4, coordinators=both)
        )


def test_an_abort_is_no_commit() -> None:
    frame = transactions.encode_end_txn_request(5, NUMBER, CLIENT, "tx", (4000, 3), False)
    assert read_request(ApiKey.END_TXN, 5, frame)[1].committed is False


def test_who_has_no_id_yet_asks_for_a_subscription_without_one() -> None:
    frame = telemetry.encode_get_subscriptions_request(0, 7, "me", telemetry.NO_ID)
    _, asked = read_request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, frame)
    assert asked.client_instance_id is None


def test_a_subscription_to_more_names_than_any_client_has_is_refused() -> None:
    head = bytes(6) + ID.bytes + bytes(4) + b"\1" + bytes.fromhex("000003e8 00010000 01")
    names = hostile_answers.array([b"\2o"] * (telemetry.MOST_METRICS + 1))
    with pytest.raises(ProtocolError, match="10001 items where 10000 are the most"):
        telemetry.decode_get_subscriptions_response(0, memoryview(head + names + b"\0"))


def test_resource_and_scope_as_opentelemetry_reads_them() -> None:
    resource, scope = {"transactional_id": "ü" * 200, "other": ""}, ("kprod", "1.2")
    written = telemetry.metrics_data(resource, scope, [])
    assert (read_resource(written), read_scope(written)) == (resource, scope)
    assert read_metrics(telemetry.metrics_data({}, scope, [])) == []
