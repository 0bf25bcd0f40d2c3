"""The requests of client telemetry as kio reads them, and its answers as kprod does."""

from __future__ import annotations

import uuid

import pytest

from kprod.errors import ProtocolError
from kprod.wire.telemetry import (
    MOST_METRICS,
    NO_ID,
    Push,
    decode_get_subscriptions_response,
    decode_push_response,
    encode_get_subscriptions_request,
    encode_push_request,
    metrics_data,
)
from kprod.wire.versions import ApiKey
from tests.support import hostile_answers
from tests.support.kio_messages import read_request
from tests.support.metrics_data import read_metrics, read_resource, read_scope
from tests.support.wire_samples import push_telemetry_response, telemetry_subscriptions_response

OWN_ID = uuid.UUID("12345678-9abc-def0-0123-456789abcdef")


def test_the_question_for_a_subscription() -> None:
    for own_id, read in ((NO_ID, None), (OWN_ID.bytes, OWN_ID)):
        frame = encode_get_subscriptions_request(0, 7, "me", own_id)
        header, body = read_request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, frame)
        assert (header.correlation_id, header.client_id) == (7, "me")
        assert body.client_instance_id == read


def test_a_push() -> None:
    metrics = b"m" * 300
    frame = encode_push_request(0, 7, "me", Push(OWN_ID.bytes, -5, True, 4, metrics))
    _, body = read_request(ApiKey.PUSH_TELEMETRY, 0, frame)
    assert (body.client_instance_id, body.subscription_id) == (OWN_ID, -5)
    assert (body.terminating, body.compression_type, body.metrics) == (True, 4, metrics)


def test_the_answer_with_a_subscription() -> None:
    reply = decode_get_subscriptions_response(0, telemetry_subscriptions_response(0))
    assert reply.error_code == 0
    assert reply.instance_id == OWN_ID.bytes
    assert (reply.subscription_id, reply.codecs) == (77, (4, 1, -1))
    assert (reply.push_interval_ms, reply.max_bytes) == (60_000, 1_000_000)
    assert reply.delta
    assert reply.metrics == ("org.apache.kafka.producer.", "")
    assert reply.throttle_ms == 250


def test_a_subscription_to_more_names_than_any_client_has_is_refused() -> None:
    head = bytes(6) + OWN_ID.bytes + bytes(4) + b"\1" + bytes.fromhex("000003e8 00010000 01")
    names = hostile_answers.array([b"\2o"] * (MOST_METRICS + 1))
    with pytest.raises(ProtocolError, match="10001 items where 10000 are the most"):
        decode_get_subscriptions_response(0, memoryview(head + names + b"\0"))


def test_the_answer_to_a_push() -> None:
    assert decode_push_response(0, push_telemetry_response(0)) == (118, 250)


def test_resource_and_scope_as_opentelemetry_reads_them() -> None:
    resource, scope = {"transactional_id": "ü" * 200, "other": ""}, ("kprod", "1.2")
    written = metrics_data(resource, scope, [])
    assert (read_resource(written), read_scope(written)) == (resource, scope)
    assert read_metrics(metrics_data({}, scope, [])) == []
