"""Requests in, responses out, for every API and version; and what ends a connection."""

from __future__ import annotations

import contextlib
import queue
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.dispatch import Dispatcher
from kprod.broker.handlers import HANDLERS
from kprod.broker.network.connection import HangUp
from kprod.broker.network.listener import Session
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.messages import response_schema
from tests.support.tier import FULL
from tests.unit.broker.nodes import WaitingReply, answer_of, ask, request, running_node
from tests.unit.broker.requests import EVERY, EVERY_VERSION, REQUESTS


@pytest.mark.parametrize("api", ApiKey)
def test_every_advertised_version_is_answered(api: ApiKey, node: Node) -> None:
    node.topics.create("t", 1)
    node.topics.create("gone", 1)
    for asked, version in EVERY_VERSION:
        if asked is api:
            assert ask(node, api, version, **REQUESTS[api]) is not None


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


MAY_WAIT = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
EXTREMES = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff")
MOST_MEMORY = 400_000
"""KiB that requests may take, each by what it asks for."""


def frames() -> list[bytes]:
    """Each request in its newest version, in all of them where there is time."""
    return [
        request(api, version, values)
        for api, values in EVERY
        for version in range(VERSIONS[api].accepted_from, VERSIONS[api].highest + 1)
        if FULL or version == VERSIONS[api].highest
    ]


def cuts(chance: random.Random) -> Iterator[bytes]:
    """Each request as it ends at every length."""
    return (frame[:length] for frame in frames() for length in range(len(frame)))


def mutations(chance: random.Random) -> Iterator[bytes]:
    """Requests with one to four changes each."""
    known = frames()
    for _ in range(20_000 if FULL else 3_000):
        data = bytearray(chance.choice(known))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1)
            extreme = chance.choice(EXTREMES)
            match chance.randrange(5):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    data[at : at + len(extreme)] = extreme
                case 2:
                    del data[at : at + chance.randint(1, 8)]
                case 3:
                    data[at:at] = chance.randbytes(chance.randint(1, 8))
                case _:
                    data[at:at] = data[max(0, at - chance.randint(1, 30)) : at]
        yield bytes(data)


def answer_in_time(reply: WaitingReply, waits: bool) -> bytes:
    """None yet of what may wait by its meaning."""
    if not waits:
        return reply.wait()
    try:
        return reply.wait(0.05)
    except queue.Empty:
        return b""


@pytest.mark.parametrize("damaged", [cuts, mutations])
def test_damaged_requests_are_answered_or_end_the_connection(
    damaged: Callable[[random.Random], Iterator[bytes]], tmp_path: Path
) -> None:
    """Each under its own correlation id, or by the end of its connection; no handler fails."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with running_node(tmp_path) as node:
        node.topics.create("t", 1)
        for frame in damaged(random.Random(21)):
            reply = WaitingReply()
            with contextlib.suppress(HangUp):
                Dispatcher(node, HANDLERS).dispatch(frame, Session(), reply)
                waits = int.from_bytes(frame[:2], "big") in MAY_WAIT
                assert answer_in_time(reply, waits)[4:8] in (b"", frame[4:8]), frame.hex()
        assert ask(node, ApiKey.METADATA, 9, topics=[{"name": "t"}]).topics[0].error_code == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


def test_a_time_beyond_all_times_ends_the_connection(tmp_path: Path) -> None:
    commit = {**REQUESTS[ApiKey.OFFSET_COMMIT], "retention_time": 1}
    frame = request(ApiKey.OFFSET_COMMIT, 2, commit)
    whole = frame.replace((1).to_bytes(8, "big"), (2**63 - 1).to_bytes(8, "big"))
    with running_node(tmp_path) as node, pytest.raises(HangUp, match=f"a time of {2**63 - 1} ms"):
        answer_of(node, whole)


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_without_a_name(version: int, node: Node) -> None:
    (found,) = ask(node, ApiKey.METADATA, version, topics=[{"name": None}]).topics
    assert found.error_code is ErrorCode.unknown_topic_id
