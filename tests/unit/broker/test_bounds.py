"""Limits of one request: memory, elements, partitions, file descriptors and handler time."""

from __future__ import annotations

import gzip
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from kprod.broker.dispatch import MOST_ELEMENTS
from kprod.broker.handlers.produce import check_batch, check_keys
from kprod.broker.log.log_config import LogConfig
from kprod.broker.network.connection import HangUp
from kprod.broker.node import Node
from kprod.broker.protocol import messages
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.topics import MAX_PARTITIONS
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader
from tests.support.raw_batch import raw_batch, raw_record
from tests.unit.broker.logs import open_log
from tests.unit.broker.nodes import answer_of, ask, request, running_node

CONFIG = LogConfig()
NOW = 1_000
MIB = 1024 * 1024
CODECS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (1, lambda data: gzip.compress(data, 1)),
    (4, lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
]


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """Python may allocate at most ``most`` further bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def compressed(codec: int, payload: bytes, count: int) -> bytes:
    return raw_batch(
        payload=payload, attributes=codec, record_count=count, last_offset_delta=count - 1
    )


def refusal(batch: bytes) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        check_keys(check_batch(batch, 9, CONFIG, NOW), batch, CONFIG)
    return caught.value


@pytest.mark.parametrize(("codec", "compress"), CODECS)
@pytest.mark.parametrize(
    ("size", "count", "fits"),
    [(10_000, 1_000, True), (100_000, 200, False), (15 * MIB, 1, True)],
    ids=["small records", "a batch that is too large", "a long record"],
)
def test_records_are_checked_in_constant_memory(
    size: int, count: int, fits: bool, codec: int, compress: Callable[[bytes], bytes]
) -> None:
    payload = b"".join(raw_record(n, bytes(size), b"k") for n in range(count))
    batch = compressed(codec, compress(payload), count)
    assert len(batch) < 200_000
    del payload
    with at_most(6 * MIB):
        if fits:
            check_keys(check_batch(batch, 9, CONFIG, NOW), batch, CONFIG)
        else:
            assert refusal(batch).code == ErrorCode.message_too_large


def test_the_record_count_is_limited_by_max_message_bytes() -> None:
    count = CONFIG.max_message_bytes
    check_batch(raw_batch(record_count=count, last_offset_delta=count - 1), 9, CONFIG, NOW)
    batch = raw_batch(record_count=count + 1, last_offset_delta=count)
    assert refusal(batch).code == ErrorCode.message_too_large


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (raw_record(0, b"v", b"k") + raw_record(0, b"v", b"k"), ErrorCode.invalid_record),
        (raw_record(0, b"v", b"k") + raw_record(1, b"v"), ErrorCode.invalid_record),
        (raw_record(0, b"v", b"k"), ErrorCode.corrupt_message),
        (raw_record(0, b"v", b"k") + b"\x7f\0\0\0\1k", ErrorCode.corrupt_message),
        (raw_record(0, b"v", b"k") + b"\x01", ErrorCode.corrupt_message),
        (raw_record(0, b"v", b"k") + b"\x02\0", ErrorCode.corrupt_message),
        (
            raw_record(0, b"v", b"k") + raw_record(1, b"v", b"k") + b"more",
            ErrorCode.corrupt_message,
        ),
    ],
)
def test_invalid_records_for_a_compacted_topic_are_refused(payload: bytes, code: ErrorCode) -> None:
    assert refusal(compressed(0, payload, 2)).code == code


def test_a_timestamp_is_found_in_constant_memory(tmp_path: Path) -> None:
    payload = b"".join(raw_record(n, bytes(100_000), b"k", n) for n in range(500))
    batch = compressed(1, gzip.compress(payload, 1), 500)
    log = open_log(tmp_path, config=CONFIG)
    log.append(BatchHeader.parse(batch), batch)
    with at_most(8 * MIB):
        found = log.view().find_timestamp(1_000)
    assert found is not None
    assert found.offset == 0


def elements(count: int) -> bytes:
    """A Metadata request for ``count`` topics of three bytes each."""
    head, tail = request(ApiKey.METADATA, 4, {"topics": [{"name": "x"}]}).split(b"\0\0\0\1\0\1x")
    return head + count.to_bytes(4, "big") + b"\0\1x" * count + tail


def test_a_request_with_too_many_elements_closes_its_connection(tmp_path: Path) -> None:
    frame = elements(3_000_000)
    within = [{"name": "x", "partitions": [{"partition_index": 0}] * 1_000}]
    with running_node(tmp_path, auto_create_topics=False) as node:
        answer_of(node, elements(MOST_ELEMENTS))
        with at_most(4 * MIB), pytest.raises(HangUp, match="elements too many"):
            answer_of(node, frame)
        with pytest.raises(HangUp, match="elements too many"):
            ask(node, ApiKey.LIST_OFFSETS, 1, topics=within * (MOST_ELEMENTS // 1_000))


def test_duplicates_in_a_request_are_answered_once(node: Node) -> None:
    node.topics.create("t", 1)
    answer = ask(node, ApiKey.METADATA, 9, topics=[{"name": "t"}] * 50)
    assert [topic.name for topic in answer.topics] == ["t"]
    wanted = [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}] * 50
    assert len(ask(node, ApiKey.DESCRIBE_CONFIGS, 1, resources=wanted).results) == 1
    assert len(ask(node, ApiKey.DESCRIBE_GROUPS, 0, groups=["g"] * 50).groups) == 1
    wanted = [{"name": "t", "partition_indexes": [0] * 50}] * 50
    (topic,) = ask(node, ApiKey.DESCRIBE_PRODUCERS, 0, topics=wanted).topics
    assert len(topic.partitions) == 1


def test_a_request_creates_at_most_as_many_partitions_as_in_kafka(node: Node) -> None:
    half = MAX_PARTITIONS // 2
    counts = {"a": half, "b": half, "c": 1}
    wanted = [
        {"name": name, "num_partitions": n, "replication_factor": 1} for name, n in counts.items()
    ]
    created = ask(node, ApiKey.CREATE_TOPICS, 5, topics=wanted)
    assert {topic.error_code for topic in created.topics} == {ErrorCode.policy_violation}
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        node.topics.create("t", MAX_PARTITIONS + 1)
    assert node.topics.all() == []
    node.topics.create("t", 1)
    node.topics.create("u", 1)
    more = [{"name": name, "count": half + 2} for name in ("t", "u")]
    grown = ask(node, ApiKey.CREATE_PARTITIONS, 0, topics=more)
    assert {topic.error_code for topic in grown.results} == {ErrorCode.policy_violation}
    assert [len(topic.partitions) for topic in node.topics.all()] == [1, 1]


def test_topic_changes_do_not_block_handlers(node: Node) -> None:
    """As many requests as there are handlers wait for a blocked change."""
    released = threading.Event()
    node.topics.create("t", 1)

    def block() -> None:
        released.wait(30)

    node.controller(block)
    wanted = [
        {"name": f"new-{number}", "num_partitions": 1, "replication_factor": 1}
        for number in range(8)
    ]
    with ThreadPoolExecutor(8) as pool:
        changes = [pool.submit(ask, node, ApiKey.CREATE_TOPICS, 5, topics=[one]) for one in wanted]
        answer = ask(node, ApiKey.METADATA, 9, topics=[{"name": "t"}])
        assert [topic.error_code for topic in answer.topics] == [0]
        assert not any(change.done() for change in changes)
        released.set()
    assert [change.result().topics[0].error_code for change in changes] == [0] * 8


def test_topics_are_not_created_while_the_broker_stops(node: Node) -> None:
    node.topics.close()
    with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
        node.topics.create("t", 1)


def test_schemas_are_imported_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Concurrent imports of modules that import each other may deadlock."""
    importing: list[int] = []
    concurrent: list[int] = []

    def load(api: int, version: int) -> Any:
        importing.append(api)
        concurrent.append(len(importing))
        time.sleep(0.002)
        importing.pop()
        return load_request_schema(api, version)

    for name in ("load_request_schema", "load_response_schema"):
        monkeypatch.setattr(messages, name, load)
    uncached = [each.__wrapped__ for each in (messages.request_schema, messages.response_schema)]
    with ThreadPoolExecutor(8) as pool:
        for loaded in [pool.submit(call, ApiKey.METADATA, 9) for call in uncached * 8]:
            loaded.result()
    assert set(concurrent) == {1}
