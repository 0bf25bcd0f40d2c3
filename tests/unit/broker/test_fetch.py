"""Fetch: limits, errors, and delayed requests."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.dispatch import Dispatcher
from kprod.broker.handlers import HANDLERS
from kprod.broker.network.listener import Session
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import response_schema
from kprod.broker.purgatory import Purgatory, Timer
from kprod.clock import SystemClock
from tests.unit.broker.logs import append, read_log
from tests.unit.broker.nodes import WaitingReply, ask, request, running_node
from tests.unit.broker.requests import REQUESTS

LONG_MS = 30_000


def wanted(node: Node, *parts: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The fields of a Fetch request for partitions of topic t."""
    topic = node.topics.find("t")
    requested = {
        "topic": "t",
        "topic_id": topic and topic.id,
        "partitions": [
            {"partition_max_bytes": 1 << 20, "current_leader_epoch": -1, **part} for part in parts
        ],
    }
    return {"max_bytes": 1 << 20, "session_epoch": -1, "topics": [requested], **options}


def fetch(node: Node, *parts: dict[str, Any], version: int = 12, **options: Any) -> Any:
    """The response to a Fetch request."""
    return ask(node, ApiKey.FETCH, version, **wanted(node, *parts, **options))


def parts_of(answer: Any) -> list[Any]:
    return [part for topic in answer.responses for part in topic.partitions]


def sizes(answer: Any) -> list[int]:
    return [len(part.records) for part in parts_of(answer)]


def test_size_limits_do_not_apply_to_the_first_batch(node: Node) -> None:
    logs = node.topics.create("t", 3).partitions
    for log in logs[1:]:
        append(log, b"x" * 1000)
        append(log, b"y" * 1000)
    one = read_log(logs[1], 0, 1)
    size = len(one)
    all_parts = [{"partition": number} for number in range(3)]
    assert sizes(fetch(node, *all_parts, max_bytes=1)) == [0, size, 0]
    assert sizes(fetch(node, *all_parts, max_bytes=3 * size)) == [0, 2 * size, size]
    small = [{**part, "partition_max_bytes": size + 10} for part in all_parts]
    assert sizes(fetch(node, *small)) == [0, size + 10, size + 10]


@pytest.mark.parametrize(
    ("part", "version", "expected"),
    [
        ({"partition": 1}, 12, ErrorCode.unknown_topic_or_partition),
        ({"partition": 0, "fetch_offset": 2}, 12, ErrorCode.offset_out_of_range),
        ({"partition": 0, "fetch_offset": -1}, 12, ErrorCode.offset_out_of_range),
        ({"partition": 0, "current_leader_epoch": 1}, 12, ErrorCode.unknown_leader_epoch),
        ("no topic", 12, ErrorCode.unknown_topic_or_partition),
        ("no topic", 13, ErrorCode.unknown_topic_id),
    ],
)
def test_errors_are_sent_at_once(part: Any, version: int, expected: ErrorCode, node: Node) -> None:
    if part == "no topic":
        part = {"partition": 0}
    else:
        append(node.topics.create("t", 1).partitions[0], b"a")
    answer = fetch(node, part, version=version, max_wait=LONG_MS, min_bytes=10**6)
    assert parts_of(answer)[0].error_code is expected


def test_fetch_sessions_are_not_supported(node: Node) -> None:
    node.topics.create("t", 1)
    assert fetch(node, {"partition": 0}, session_epoch=0).session_id == 0
    refused = fetch(node, {"partition": 0}, session_id=7, session_epoch=1)
    assert refused.error_code is ErrorCode.fetch_session_id_not_found


def test_a_damaged_batch_is_not_served(node: Node) -> None:
    log = node.topics.create("t", 1).partitions[0]
    append(log, b"a")
    append(log, b"b")
    file = log.directory / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[16] = 9
    file.write_bytes(content)
    (part,) = parts_of(fetch(node, {"partition": 0}))
    assert part.error_code is ErrorCode.corrupt_message


def test_a_waiting_fetch_is_answered_by_a_produced_batch(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        node.topics.create("t", 1)
        values = wanted(node, {"partition": 0}, max_wait=100 * LONG_MS, min_bytes=1)
        reply = WaitingReply()
        dispatcher = Dispatcher(node, HANDLERS)
        dispatcher.dispatch(request(ApiKey.FETCH, 12, values), Session(), reply)
        ask(node, ApiKey.PRODUCE, 9, **REQUESTS[ApiKey.PRODUCE])
        body = response_schema(ApiKey.FETCH, 12).decode(reply.wait()[4:])[1]
    assert sizes(body)[0] > 61


# Delayed operations -------------------------------------------------------------------------------


LONG = 3_600.0


class Waiting:
    """An operation that completes once ``ready``; records its attempts."""

    def __init__(self) -> None:
        self.ready = False
        self.attempts: list[bool] = []
        self.completed = 0

    def __call__(self, last: bool) -> bool:
        self.attempts.append(last)
        complete = self.ready or last
        self.completed += complete
        return complete


class Rig:
    """A purgatory whose jobs run in ``run``."""

    def __init__(self) -> None:
        self.timer = Timer(SystemClock())
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.purgatory = Purgatory(self.timer, self.jobs.put)

    def run(self) -> int:
        """Run the submitted jobs; returns their number."""
        count = 0
        while not self.jobs.empty():
            self.jobs.get()()
            count += 1
        return count


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.timer.close()


def test_only_operations_watching_the_key_are_retried(rig: Rig) -> None:
    a, b = Waiting(), Waiting()
    rig.purgatory.watch(["x", "y"], LONG, a)
    rig.purgatory.watch(["y"], LONG, b)
    rig.purgatory.wake("x")
    rig.run()
    assert (a.attempts, b.attempts) == ([False, False], [False])
    b.ready = True
    rig.purgatory.wake("y")
    rig.run()
    assert (a.completed, b.completed) == (0, 1)


def test_an_operation_completes_once_and_on_close_at_the_latest(rig: Rig) -> None:
    ready, waiting, late = Waiting(), Waiting(), Waiting()
    rig.purgatory.watch(["x", "y"], LONG, ready)
    rig.purgatory.watch(["z"], LONG, waiting)
    ready.ready = True
    rig.purgatory.wake("x")
    rig.purgatory.wake("y")
    assert rig.run() == 1
    rig.purgatory.wake("x")
    rig.purgatory.close()
    rig.run()
    rig.purgatory.watch(["z"], LONG, late)
    assert (ready.completed, waiting.attempts, late.attempts) == (1, [False, True], [True])


def test_a_wake_up_during_an_attempt_causes_another_one(rig: Rig) -> None:
    seen: list[bool] = []

    def attempt(last: bool) -> bool:
        if not seen:
            rig.purgatory.wake("x")
        seen.append(last)
        return len(seen) == 2

    rig.purgatory.watch(["x"], LONG, attempt)
    assert seen == [False, False]


def test_an_operation_is_attempted_last_at_its_deadline(rig: Rig) -> None:
    a, b = Waiting(), Waiting()
    rig.purgatory.watch(["x"], 0, a)
    assert a.attempts == [True]
    rig.purgatory.watch(["x"], 0.01, b)
    while len(b.attempts) < 2:  # on a slow machine, `watch` itself makes the last attempt
        with suppress(queue.Empty):
            rig.jobs.get(timeout=0.1)()
    assert b.attempts == [False, True]
