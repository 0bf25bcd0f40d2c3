"""ListOffsets (2): where a partition begins, ends, or passes a point in time."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.time_index import TimestampOffset
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.record_batch import CorruptBatch
from kprod.errors import BrokerError

READ_COMMITTED: Final = 1
_LATEST: Final = -1
_EARLIEST: Final = -2
_LARGEST_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_FIRST_VERSIONS: Final = {_LARGEST_TIMESTAMP: 7, _EARLIEST_LOCAL: 8}
_NOTHING: Final = TimestampOffset(-1, -1)


def list_offsets(call: Call, node: Node) -> Message:
    """One offset per partition."""
    return {
        "topics": [
            {
                "name": wanted.name,
                "partitions": [
                    _partition(wanted.name, part, call, node) for part in wanted.partitions
                ],
            }
            for wanted in call.body.topics
        ]
    }


def _partition(topic: str, part: Any, call: Call, node: Node) -> Message:
    answer = {"partition_index": part.partition_index}
    try:
        epoch = getattr(part, "current_leader_epoch", -1)
        log = node.partition(node.topic(topic, None), part.partition_index, epoch)
        if call.version < _FIRST_VERSIONS.get(part.timestamp, 0):
            raise BrokerError(ErrorCode.unsupported_version)
        committed = getattr(call.body, "isolation_level", 0) == READ_COMMITTED
        timestamp, offset = _find(log, part.timestamp, committed=committed)
    except CorruptBatch:
        return {**answer, "error_code": ErrorCode.corrupt_message}
    except BrokerError as error:
        return {**answer, "error_code": error.code}
    known_epoch = log.epoch_at(offset) if offset >= 0 else -1
    return {**answer, "timestamp": timestamp, "offset": offset, "leader_epoch": known_epoch}


def _find(log: PartitionLog, timestamp: int, *, committed: bool) -> TimestampOffset:
    end = log.last_stable_offset if committed else log.end_offset
    if timestamp == _LATEST:
        return TimestampOffset(-1, end)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampOffset(-1, log.start_offset)
    found = None
    if timestamp == _LARGEST_TIMESTAMP:
        found = log.largest_timestamp()
    elif timestamp >= 0:  # the others are points of tiered storage, of which there is none
        found = log.find_timestamp(timestamp)
    # A reader of what is committed is not told of what it cannot read yet.
    return _NOTHING if found is None or found.offset >= end else found
