"""Why a bulk call stopped writing: the numbers that compiled code has for it."""

from __future__ import annotations

from enum import IntEnum


class BulkStop(IntEnum):
    """What ``BulkAppender.write`` returns."""

    DONE = 0
    """Every record of the chunk was written."""
    NO_ROOM = 1
    """The next record needs a new batch of ``partition``, and no spare one can be it."""
    NOT_ADMITTED = 2
    """The next record is the first for ``partition``, as far as the topic's appender knows."""
    NO_STICKY = 3
    """The next record has neither partition nor key, and no sticky partition has a share left."""
