"""Which segments are too old or too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.segment import LogSegment

_NO_LIMIT: Final = -1


def expired_segments(
    segments: Sequence[LogSegment],
    config: LogConfig,
    start_offset: int,
    stable_offset: int,
    end_offset: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments are to go (Kafka: UnifiedLog.deleteOldSegments).

    By age and size where the policy is to delete; for lying before the start of the log in any
    case. The segment that is written to may be among them only by its age. What lies behind the
    last stable offset stays.
    """
    count = 0
    size = sum(segment.size for segment in segments)
    for number, segment in enumerate(segments):
        following = segments[number + 1 : number + 2]
        if not segment.size and not following:
            break
        if stable_offset < (following[0].base_offset if following else end_offset):
            break
        before_start = bool(following) and following[0].base_offset <= start_offset
        too_large = (
            config.deletes
            and config.retention_bytes != _NO_LIMIT
            and bool(following)
            and size - segment.size >= config.retention_bytes
        )
        if not (before_start or too_large or _too_old(segment, config, now_ms)):
            break
        size -= segment.size
        count += 1
    return count


def _too_old(segment: LogSegment, config: LogConfig, now_ms: int) -> bool:
    if not config.deletes or config.retention_ms == _NO_LIMIT:
        return False
    latest = segment.largest_timestamp.timestamp
    if latest < 0:
        latest = segment.modified_ms
    return now_ms - latest > config.retention_ms
