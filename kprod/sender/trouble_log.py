"""Tells the log of brokers that cannot be reached: enough to see it, and no flood."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass

from kprod.errors import KprodError

log = logging.getLogger(__name__)

INTERVAL = 60.0
"""Seconds between two lines about the same broker."""
KEPT = 1000
"""Brokers remembered; beyond that those are forgotten that were quiet for longest."""


@dataclass(slots=True)
class _Trouble:
    told_at: float
    since: float
    failures: int = 1  # in a row
    left_out: int = 0  # since the last line
    told: bool = True  # that it fails, and not yet that it works


class TroubleLog:
    """One line per broker and ``INTERVAL``, with the number of those left out; one when it works.

    Thread: the sender's only. Times are seconds on the monotonic clock.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._troubles: dict[str, _Trouble] = {}
        self._mistakes: dict[str, float] = {}  # when each was told last

    def failed(self, broker: str, error: KprodError, now: float) -> None:
        """A connection to ``broker`` could not be made, or broke; ``error`` names it."""
        trouble = self._troubles.get(broker)
        if trouble is None:
            self._make_room()
            self._troubles[broker] = _Trouble(told_at=now, since=now)
            log.warning("%s: %s", self._client_id, error)
            return
        trouble.since = trouble.since if trouble.failures else now
        trouble.failures += 1
        if now - trouble.told_at < INTERVAL:
            trouble.left_out += 1
            return
        log.warning("%s: %s%s", self._client_id, error, self._others(trouble, now))
        trouble.told_at, trouble.left_out, trouble.told = now, 0, True

    @staticmethod
    def _others(trouble: _Trouble, now: float) -> str:
        if not trouble.left_out:
            return ""
        return f" ({trouble.left_out} more failures in the last {now - trouble.told_at:.0f} s)"

    def works(self, broker: str, now: float) -> None:
        """A connection to ``broker`` has come up."""
        trouble = self._troubles.get(broker)
        if trouble is None:
            return
        if trouble.told:
            after = f"after {now - trouble.since:.3g} s, {trouble.failures} failures"
            log.warning("%s: %s is connected again %s", self._client_id, broker, after)
        trouble.failures, trouble.told = 0, False

    def warn(self, what: str) -> None:
        """Something rare that users should know of."""
        log.warning("%s: %s", self._client_id, what)

    def mistake(self, what: str, error: Exception, now: float) -> None:
        """Something is broken, here or in a transport: told with its stack, but not each time."""
        if now - self._mistakes.get(what, -INTERVAL) < INTERVAL:
            return
        if len(self._mistakes) >= KEPT:
            self._mistakes.clear()
        self._mistakes[what] = now
        # As text: a handler that keeps records would keep the frames, and the memory they look at.
        stack = "".join(traceback.format_exception(error)).rstrip()
        log.error("%s: %s\n%s", self._client_id, what, stack)

    def _make_room(self) -> None:
        if len(self._troubles) >= KEPT:
            del self._troubles[min(self._troubles, key=lambda name: self._troubles[name].told_at)]
