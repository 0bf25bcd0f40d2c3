"""ListOffsets (2): where a partition begins, ends, or passes a point in time."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.log.partition_log import LEADER_EPOCH, PartitionLog
from kprod.broker.log.time_index import TimestampOffset
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.record_batch import CorruptBatch
from kprod.errors import BrokerError

_LATEST: Final = -1
_EARLIEST: Final = -2
_LARGEST_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_NOTHING: Final = TimestampOffset(-1, -1)


def list_offsets(call: Call, node: Node) -> Message:
    """One offset per partition."""
    return {
        "topics": [
            {
                "name": wanted.name,
                "partitions": [_partition(wanted.name, part, node) for part in wanted.partitions],
            }
            for wanted in call.body.topics
        ]
    }


def _partition(topic: str, part: Any, node: Node) -> Message:
    answer = {"partition_index": part.partition_index}
    try:
        epoch = getattr(part, "current_leader_epoch", -1)
        log = node.partition(node.topic(topic, None), part.partition_index, epoch)
        timestamp, offset = _find(log, part.timestamp)
    except CorruptBatch:
        return {**answer, "error_code": ErrorCode.corrupt_message}
    except BrokerError as error:
        return {**answer, "error_code": error.code}
    known_epoch = LEADER_EPOCH if offset >= 0 else -1
    return {**answer, "timestamp": timestamp, "offset": offset, "leader_epoch": known_epoch}


def _find(log: PartitionLog, timestamp: int) -> TimestampOffset:
    if timestamp == _LATEST:
        return TimestampOffset(-1, log.end_offset)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampOffset(-1, log.start_offset)
    if timestamp == _LARGEST_TIMESTAMP:
        return log.largest_timestamp() or _NOTHING
    if timestamp < 0:
        # The points of tiered storage, of which there is none.
        return _NOTHING
    return log.find_timestamp(timestamp) or _NOTHING
