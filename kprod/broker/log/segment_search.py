"""Finding something in the segments of a log, which are in the order of their offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kprod.broker.log.segment import LogSegment
from kprod.broker.log.time_index import TimestampOffset


def holder(segments: Sequence[LogSegment], offset: int) -> int:
    """Where in the list the segment of an offset is."""
    return max(bisect_right(segments, offset, key=lambda s: s.base_offset) - 1, 0)


def first_since(
    timestamp: int, segments: Sequence[LogSegment], start: int, active_size: int
) -> TimestampOffset | None:
    """The first record from offset ``start`` on that is not older; ``CorruptBatch``.

    The last segment counts up to file position ``active_size``: it is written to meanwhile.
    """
    for segment in segments:
        if segment.largest_timestamp.timestamp >= timestamp:
            limit = active_size if segment is segments[-1] else segment.size
            found = segment.find_timestamp(timestamp, start, limit)
            if found is not None:
                return found
    return None
