from collections.abc import Callable
from typing import final

@final
class RecordClock:
    """The time of records that were sent without one. Thread-safe.

    ``source`` tells milliseconds since the epoch; None is the system's clock, as of its last tick
    (``CLOCK_REALTIME_COARSE``: 1 to 10 ms). A step back of at most a minute is not followed: the
    clock stands still until its source has caught up. A longer one is: that source was wrong, and
    was set right. Raises TypeError for a source that cannot be called.
    """

    def __new__(cls, source: Callable[[], int] | None = None) -> RecordClock: ...
    def wall_ms(self) -> int:
        """Milliseconds since the epoch. Raises what ``source`` raises."""
