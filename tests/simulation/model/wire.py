"""The broker's side of the wire, as kio reads and writes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from tests.support.scripted_cluster import ReceivedRequest, frame, received

read_request = lru_cache(maxsize=64)(received)
"""Cached: each request is read when it leaves and when it arrives."""


class PartitionData(NamedTuple):
    """One partition's batch in a Produce request; named by ``topic_id`` from version 13 on."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    records: bytes


def batches(request: ReceivedRequest) -> list[PartitionData]:
    return [
        PartitionData(
            getattr(topic, "name", None), getattr(topic, "topic_id", None), part.index, part.records
        )
        for topic in request.body.topic_data
        for part in topic.partition_data
    ]


def topics_of(request: ReceivedRequest) -> list[str]:
    return [topic.name for topic in request.body.topics or ()]


@dataclass(slots=True)
class PartitionResult:
    """One partition's result in a Produce response; ``hint``: leader id and epoch."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    code: int = 0
    base_offset: int = -1
    append_time: int | None = None
    hint: tuple[int, int] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "index": self.partition,
            "error_code": self.code,
            "base_offset": self.base_offset,
            "log_append_time": self.append_time,
            "log_start_offset": -1 if self.code else 0,
        }
        if self.hint is not None:
            leader, epoch = self.hint
            fields["current_leader"] = {"leader_id": leader, "leader_epoch": epoch}
        return fields


def write_produce(
    request: ReceivedRequest, results: list[PartitionResult], throttle_ms: int
) -> bytes:
    topics: dict[tuple[str | None, UUID | None], list[dict[str, Any]]] = {}
    for result in results:
        topics.setdefault((result.topic, result.topic_id), []).append(result.fields)
    responses = [
        {"name": name, "topic_id": topic_id, "partition_responses": members}
        for (name, topic_id), members in topics.items()
    ]
    return frame(request, responses=responses, throttle_time=throttle_ms)
