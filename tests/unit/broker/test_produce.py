"""Produce: what is stored, what is refused, what is answered."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from tests.support.raw_batch import raw_batch
from tests.unit.broker.nodes import ask


def produce(
    node: Node, batches: dict[tuple[str, int], bytes], acks: int = -1, version: int = 9
) -> dict[tuple[str, int], Any]:
    """One request; the partitions' answers by topic and number."""
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
    answer = ask(node, ApiKey.PRODUCE, version, acks=acks, topic_data=data)
    return {
        (getattr(topic, "name", "by id"), part.index): part
        for topic in answer.responses
        for part in topic.partition_responses
    }


def test_each_partition_is_answered_for_itself(node: Node) -> None:
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


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(acks: int, node: Node) -> None:
    log = node.topics.create("t", 1).partitions[0]
    answer = produce(node, {("t", 0): raw_batch()}, acks)["t", 0]
    assert answer.error_code is ErrorCode.invalid_required_acks
    assert log.end_offset == 0


def test_topics_by_id(node: Node) -> None:
    node.topics.create("t", 1)
    answer = produce(node, {("t", 0): raw_batch()}, version=13)
    assert answer["by id", 0].base_offset == 0
    answer = produce(node, {("nowhere", 0): raw_batch()}, version=13)
    assert answer["by id", 0].error_code is ErrorCode.unknown_topic_id
