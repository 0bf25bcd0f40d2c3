"""How fast one task may write, so that all that run together keep to the job's limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

from kprod.errors import ConfigError

SLICE_SECONDS = 0.2  # how much of the time the rows that are sent at once may take


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """Records and bytes (of keys and values) per second; None: as fast as it goes. Immutable."""

    records: float | None = None
    bytes: float | None = None

    def __post_init__(self) -> None:
        limits: dict[str, Any] = {"records": self.records, "bytes": self.bytes}
        for name, limit in limits.items():
            number = isinstance(limit, Real) and not isinstance(limit, bool)
            if limit is not None and not (number and limit > 0):
                raise ConfigError(f"max_{name}_per_second: must be more than 0; got {limit!r}")

    def shared_by(self, tasks: int) -> RateLimit:
        """The share of one of ``tasks`` that run at the same time."""
        return RateLimit(
            records=None if self.records is None else self.records / tasks,
            bytes=None if self.bytes is None else self.bytes / tasks,
        )

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit at all."""
        return self.records is None and self.bytes is None


class RateLimiter:
    """Waits until what is to be sent may be. Thread: one.

    Debts are paid afterwards: what is sent now lets the next ones wait. So a record that is larger
    than a second's share goes out, too.
    """

    def __init__(
        self,
        limit: RateLimit,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = limit
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def wait(self, records: int, nbytes: int) -> None:
        """Wait for the turn of so many records, and take it."""
        pause = self._free_at - self._now()
        if pause > 0:
            self._sleep(pause)
        self._free_at = max(self._free_at, self._now()) + self._seconds(records, nbytes)

    def pieces(self, batch: Any, nbytes: int) -> Iterator[Any]:
        """Slices of a record batch of ``nbytes``, each of a fraction of a second's share."""
        rows = batch.num_rows
        seconds = self._seconds(rows, nbytes)
        size = rows if seconds <= SLICE_SECONDS else max(1, int(rows * SLICE_SECONDS / seconds))
        for start in range(0, rows, max(1, size)):
            yield batch.slice(start, size)

    def _seconds(self, records: int, nbytes: int) -> float:
        limits = ((records, self._limit.records), (nbytes, self._limit.bytes))
        return max(count / limit if limit else 0.0 for count, limit in limits)
