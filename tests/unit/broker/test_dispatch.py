"""Requests in, responses out, for every API and version; and what ends a connection."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kprod.broker.handlers import HANDLERS
from kprod.broker.network.connection import HangUp
from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.messages import response_schema
from tests.unit.broker.nodes import answer_of, ask, request, running_node
from tests.unit.broker.requests import EVERY_VERSION, REQUESTS


@pytest.mark.parametrize("api", ApiKey)
def test_every_advertised_version_is_answered(api: ApiKey, tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        node.topics.create("t", 1)
        node.topics.create("gone", 1)
        for asked, version in EVERY_VERSION:
            if asked is api:
                assert ask(node, api, version, **REQUESTS[api]) is not None


def test_every_api_has_versions_and_a_handler() -> None:
    assert set(VERSIONS) == set(HANDLERS) == set(ApiKey)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_api_versions_request_from_the_future(version: int, tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        frame = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7" + b"\xff" * 9
        answer = answer_of(node, frame)
    assert answer is not None
    header, body = response_schema(ApiKey.API_VERSIONS, 0).decode(answer[4:])
    assert header.correlation_id == 7
    assert body.error_code is ErrorCode.unsupported_version
    assert [(k.api_key, k.min_version, k.max_version) for k in body.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\x09\0\0",
        b"\0\x07\0\0\0\0\0\1\0\0",
        b"\x7f\xff\0\0\0\0\0\1\0\0",
        b"\0\0\0\2\0\0\0\1\xff\xff" + b"\0" * 20,
        b"\0\0\0\x0e\0\0\0\1\xff\xff" + b"\0" * 20,
        b"\0\3\0\x0c\0\0\0\1\0\5ab",
        b"\0\3\0\x0c\0\0\0\1\xff\xff\0\xff\xff\xff\xff\x0f",
        b"\0\3\0\x04\0\0\0\1\xff\xff\x7f\xff\xff\xff",
        b"\0\3\0\x04\0\0\0\1\xff\xff\0\0\0\1\0\4\xff\xfe\xff\xfe\1",
    ],
)
def test_what_is_no_request_of_ours_ends_the_connection(frame: bytes, tmp_path: Path) -> None:
    with running_node(tmp_path) as node, pytest.raises(HangUp):
        answer_of(node, frame)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_requests_are_answered_or_end_the_connection(
    tmp_path: Path, data: st.DataObject
) -> None:
    api, version = data.draw(st.sampled_from(EVERY_VERSION))
    frame = bytearray(request(api, version, REQUESTS[api]))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(8, len(frame))) :]
    with running_node(tmp_path) as node, contextlib.suppress(HangUp):
        answer_of(node, bytes(frame))


def test_a_time_beyond_all_times_ends_the_connection(tmp_path: Path) -> None:
    commit = {**REQUESTS[ApiKey.OFFSET_COMMIT], "retention_time": 1}
    frame = request(ApiKey.OFFSET_COMMIT, 2, commit)
    whole = frame.replace((1).to_bytes(8, "big"), (2**63 - 1).to_bytes(8, "big"))
    with running_node(tmp_path) as node, pytest.raises(HangUp, match=f"a time of {2**63 - 1} ms"):
        answer_of(node, whole)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_without_a_name(version: int, tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        (found,) = ask(node, ApiKey.METADATA, version, topics=[{"name": None}]).topics
        assert found.error_code is ErrorCode.unknown_topic_id
