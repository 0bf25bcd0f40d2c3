"""Fetch (1), ListOffsets (2), OffsetForLeaderEpoch (23): read, and find where to start reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.log.indexes import AbortedTransaction, TimestampOffset
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Call, Give, Later, Node, by_topic, or_error
from kprod.broker.protocol.messages import Message
from kprod.errors import BrokerError
from kprod.records.codecs import CorruptBatch
from kprod.types import TopicPartition

READ_COMMITTED: Final = 1
_LATEST: Final = -1
_EARLIEST: Final = -2
_LARGEST_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_FIRST_VERSIONS: Final = {_LARGEST_TIMESTAMP: 7, _EARLIEST_LOCAL: 8}
_NOTHING: Final = TimestampOffset(-1, -1)


def list_offsets(call: Call, node: Node) -> Message:
    """For each partition, return its start, its end, or the offset for a timestamp."""

    def one(topic: str, part: Any) -> Message:
        number = {"partition_index": part.partition_index}
        return or_error(number, _offset, topic, part, call, node)

    return {"topics": by_topic(call.body.topics, one)}


def _offset(topic: str, part: Any, call: Call, node: Node) -> Message:
    epoch = getattr(part, "current_leader_epoch", -1)
    log = node.partition(node.topic(topic, None), part.partition_index, epoch)
    if call.version < _FIRST_VERSIONS.get(part.timestamp, 0):
        raise BrokerError(ErrorCode.unsupported_version)
    committed = getattr(call.body, "isolation_level", 0) == READ_COMMITTED
    timestamp, offset = _find_offset(log, part.timestamp, committed=committed)
    known_epoch = log.epoch_at(offset) if offset >= 0 else -1
    return {"timestamp": timestamp, "offset": offset, "leader_epoch": known_epoch}


def _find_offset(log: PartitionLog, timestamp: int, *, committed: bool) -> TimestampOffset:
    end = log.last_stable_offset if committed else log.end_offset
    if timestamp == _LATEST:
        return TimestampOffset(-1, end)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampOffset(-1, log.start_offset)
    found = None
    if timestamp == _LARGEST_TIMESTAMP:
        found = log.view().largest_timestamp()
    elif timestamp >= 0:  # the others are points of tiered storage
        found = log.view().find_timestamp(timestamp)
    # A reader of committed records gets no offset that it cannot read yet.
    return _NOTHING if found is None or found.offset >= end else found


def offset_for_leader_epoch(call: Call, node: Node) -> Message:
    """For each partition, return the latest epoch up to the requested one, and where it ends."""

    def one(topic: str, part: Any) -> Message:
        return or_error({"partition": part.partition}, _end_of_epoch, topic, part, node)

    return {"topics": by_topic(call.body.topics, one, "topic")}


def _end_of_epoch(topic: str, part: Any, node: Node) -> Message:
    log = node.partition(node.topic(topic, None), part.partition, part.current_leader_epoch)
    epoch, end = log.end_of_epoch(part.leader_epoch)
    return {"leader_epoch": epoch, "end_offset": end}


_FULL_FETCH_EPOCHS: Final = (-1, 0)
_MOST_BYTES: Final = 55 * 1024 * 1024
"""Limit of records in one response, even if the client allows more (``fetch.max.bytes``)."""


_NO_PARTITION: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


class _Answer(NamedTuple):
    message: Message
    bytes: int
    failed: bool


def fetch(call: Call, node: Node) -> Message | Later:
    """Answer with batches when there are ``min_bytes`` of them or ``max_wait`` has passed.

    If a partition cannot be read, answer immediately. Fetch sessions (KIP-227) are not supported:
    the answer always has the session id 0, so the client names all its partitions in each request.
    """
    if getattr(call.body, "session_epoch", -1) not in _FULL_FETCH_EPOCHS:
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    answer = _read(call, node)
    if _settled(answer, call):
        return answer.message
    return Later(lambda give: _wait(call, node, give))


def _settled(answer: _Answer, call: Call) -> bool:
    return answer.failed or answer.bytes >= call.body.min_bytes or not call.body.topics


def _wait(call: Call, node: Node, give: Give) -> None:
    def attempt(last: bool) -> bool:
        try:
            answer = _read(call, node)
        except Exception as error:
            give(error)
            return True
        complete = last or _settled(answer, call)
        if complete:
            give(answer.message)
        return complete

    node.purgatory.watch(_partitions(call, node), call.body.max_wait.total_seconds(), attempt)


def _partitions(call: Call, node: Node) -> list[TopicPartition]:
    keys: list[TopicPartition] = []
    for wanted in call.body.topics:
        topic = node.topics.find(wanted.topic) if hasattr(wanted, "topic") else None
        topic = topic or node.topics.find_id(getattr(wanted, "topic_id", None))
        if topic is not None:
            keys.extend(TopicPartition(topic.name, part.partition) for part in wanted.partitions)
    return keys


def _read(call: Call, node: Node) -> _Answer:
    """Read the partitions once.

    The first batch in the answer may be larger than the limits, so that readers always advance.
    """
    left, total, failed = min(call.body.max_bytes, _MOST_BYTES), 0, False
    committed = call.body.isolation_level == READ_COMMITTED
    responses = []
    for wanted in call.body.topics:
        parts = []
        for part in wanted.partitions:
            answer = _partition(
                wanted, part, node, left, whole_first=total == 0, committed=committed
            )
            parts.append(answer.message)
            total += answer.bytes
            left = max(0, left - answer.bytes)
            failed = failed or answer.failed
        responses.append(
            {
                "topic": getattr(wanted, "topic", None),
                "topic_id": getattr(wanted, "topic_id", None),
                "partitions": parts,
            }
        )
    return _Answer({"responses": responses}, total, failed)


def _partition(
    wanted: Any, part: Any, node: Node, left: int, *, whole_first: bool, committed: bool
) -> _Answer:
    try:
        name, topic_id = getattr(wanted, "topic", None), getattr(wanted, "topic_id", None)
        epoch = getattr(part, "current_leader_epoch", -1)
        log = node.partition(node.topic(name, topic_id), part.partition, epoch)
        limit = min(left, part.partition_max_bytes)
        found = log.locate(part.fetch_offset, limit, whole_first=whole_first, committed=committed)
    except CorruptBatch as error:
        return _refusal(part, BrokerError(ErrorCode.corrupt_message, str(error)))
    except BrokerError as error:
        return _refusal(part, error)
    message = {
        "partition_index": part.partition,
        "high_watermark": found.high_watermark,
        "last_stable_offset": found.last_stable_offset,
        "log_start_offset": found.log_start_offset,
        "aborted_transactions": None if found.aborted is None else _spelled(found.aborted),
        "records": found.records,
    }
    return _Answer(message, len(found.records), False)


def _spelled(aborted: Sequence[AbortedTransaction]) -> list[Message]:
    return [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in aborted]


def _refusal(part: Any, error: BrokerError) -> _Answer:
    message = {
        "partition_index": part.partition,
        "error_code": error.code,
        "high_watermark": -1,
        # As in Apache Kafka: no transactions for an unknown partition, else null.
        "aborted_transactions": () if error.code in _NO_PARTITION else None,
        "records": b"",
    }
    return _Answer(message, 0, True)
