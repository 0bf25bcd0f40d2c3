"""Produce: stored and refused batches, and the responses."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.handlers.produce import check_batch, check_keys
from kprod.broker.log.log_config import LogConfig
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader
from tests.support.raw_batch import raw_batch, raw_record
from tests.unit.broker.nodes import ask


def produce(
    node: Node, batches: dict[tuple[str, int], bytes], version: int = 9
) -> dict[tuple[str, int], Any]:
    """Send one request; returns the responses by topic and partition."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), records in batches.items():
        topics.setdefault(topic, []).append({"index": number, "records": records})
    data = [
        {
            "name": name,
            "topic_id": getattr(node.topics.find(name), "id", None),
            "partition_data": parts,
        }
        for name, parts in topics.items()
    ]
    answer = ask(node, ApiKey.PRODUCE, version, acks=-1, topic_data=data)
    return {
        (getattr(topic, "name", "by id"), part.index): part
        for topic in answer.responses
        for part in topic.partition_responses
    }


def test_each_partition_has_its_own_result(node: Node) -> None:
    node.topics.create("t", 2)
    node.topics.create("u", 1)
    answer = produce(
        node,
        {
            ("t", 0): raw_batch([b"a", b"b"]),
            ("t", 1): raw_batch(crc=1),
            ("t", 2): raw_batch(),
            ("t", -1): raw_batch(),
            ("u", 0): raw_batch(magic=1),
            ("nowhere", 0): raw_batch(),
        },
    )
    assert {where: part.error_code for where, part in answer.items()} == {
        ("t", 0): ErrorCode.none,
        ("t", 1): ErrorCode.corrupt_message,
        ("t", 2): ErrorCode.unknown_topic_or_partition,
        ("t", -1): ErrorCode.unknown_topic_or_partition,
        ("u", 0): ErrorCode.invalid_record,
        ("nowhere", 0): ErrorCode.unknown_topic_or_partition,
    }
    stored = answer["t", 0]
    assert (stored.base_offset, stored.log_append_time, stored.log_start_offset) == (0, -1, 0)
    assert stored.error_message is None
    refused = answer["t", 1]
    assert (refused.base_offset, refused.log_start_offset) == (-1, -1)
    assert "CRC" in refused.error_message
    assert node.topics.find("nowhere") is None


def test_topics_can_be_named_by_id(node: Node) -> None:
    node.topics.create("t", 1)
    answer = produce(node, {("t", 0): raw_batch()}, version=13)
    assert answer["by id", 0].base_offset == 0
    answer = produce(node, {("nowhere", 0): raw_batch()}, version=13)
    assert answer["by id", 0].error_code is ErrorCode.unknown_topic_id


# Valid batches, and error codes for invalid ones --------------------------------------------------


NOW = 1_000_000_000
CONFIG = LogConfig(max_message_bytes=2_000)


BATCH = raw_batch()
INVALID, CORRUPT = ErrorCode.invalid_record, ErrorCode.corrupt_message
TOO_LATE = ErrorCode.invalid_timestamp
LARGE, UNSUPPORTED = ErrorCode.message_too_large, ErrorCode.unsupported_compression_type
MOST = CONFIG.max_message_bytes - len(raw_batch([b"x" * 1_000])) + 1_000
LATEST = NOW + CONFIG.message_timestamp_after_max_ms
TRANSACTIONAL = 0x10


@pytest.mark.parametrize(
    ("records", "version"),
    [
        *((raw_batch([b"a", b"b"], attributes=codec), 7) for codec in range(5)),
        (raw_batch([b"x" * MOST]), 9),
        (raw_batch(max_timestamp=LATEST), 9),
        (raw_batch(attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0), 9),
    ],
)
def test_valid_batches_are_accepted(records: bytes, version: int) -> None:
    header = check_batch(records, version, CONFIG, NOW)
    assert header == BatchHeader.parse(records)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (raw_batch(base_offset=1), INVALID),
        (raw_batch(attributes=0x20), INVALID),
        (raw_batch(attributes=TRANSACTIONAL), INVALID),
        (raw_batch(record_count=0, last_offset_delta=-1), INVALID),
        (raw_batch(record_count=-1), INVALID),
        (raw_batch(last_offset_delta=1), INVALID),
        (raw_batch(producer_id=-2), INVALID),
        (raw_batch(producer_id=5, producer_epoch=0), INVALID),
        (raw_batch(producer_id=5, base_sequence=0), INVALID),
        (raw_batch(attributes=0x08, max_timestamp=-1), INVALID),
        *((raw_batch(magic=magic), INVALID) for magic in (0, 1, 3)),
        *((anything, INVALID) for anything in (None, b"", BATCH * 2, BATCH + b"x")),
        *((cut, INVALID) for cut in (BATCH[:-1], BATCH[:61], raw_batch(batch_length=2**31 - 1))),
        *((cut, CORRUPT) for cut in (BATCH[:60], BATCH[:10])),
        (raw_batch(crc=1), CORRUPT),
        *((raw_batch(batch_length=length), CORRUPT) for length in (48, -1)),
        (raw_batch([b"x" * (MOST + 1)]), LARGE),
        *((raw_batch(attributes=codec), UNSUPPORTED) for codec in (5, 6, 7)),
        (raw_batch(max_timestamp=LATEST + 1), TOO_LATE),
    ],
)
def test_invalid_batches_are_refused(records: bytes | None, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as caught:
        check_batch(records, 13, CONFIG, NOW)
    assert caught.value.code == code


def test_zstd_is_refused_in_old_request_versions() -> None:
    with pytest.raises(BrokerError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        check_batch(raw_batch(attributes=4), 6, CONFIG, NOW)


FUTURE = LATEST + 1


@pytest.mark.parametrize(
    ("records", "code", "named"),
    [
        ([(b"k", 0), (b"k", 1), (b"k", FUTURE), (b"k", 2), (b"k", FUTURE)], TOO_LATE, [2, 4]),
        ([(b"k", 0), (None, 0), (b"k", 0), (None, 0)], INVALID, [1, 3]),
    ],
    ids=["future timestamps", "without a key"],
)
def test_all_invalid_records_are_listed(
    records: list[tuple[bytes | None, int]], code: ErrorCode, named: list[int]
) -> None:
    batch = raw_batch(
        payload=b"".join(raw_record(n, b"v", *record) for n, record in enumerate(records)),
        record_count=len(records),
        last_offset_delta=len(records) - 1,
        base_timestamp=0,
        max_timestamp=max(time for _, time in records),
    )
    with pytest.raises(BrokerError) as refused:
        check_keys(check_batch(batch, 9, CONFIG, NOW), batch, CONFIG)
    assert (refused.value.code, list(refused.value.record_errors)) == (code, named)
