"""Tells the log of brokers that cannot be reached: enough to see it, and no flood."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from logging import DEBUG

from kprod.errors import KprodError
from kprod.sender_log import SenderLog

log = SenderLog(__name__)

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


@dataclass(slots=True)
class _Told:
    at: float
    left_out: int = 0  # since then


class TroubleLog:
    """One line per broker and ``INTERVAL``, with the number of those left out; one when it works.

    At DEBUG every connection that is made, fails or ends has a line. Thread: the sender's only.
    Times are seconds on the monotonic clock.
    """

    def __init__(self, client_id: str) -> None:
        self.come_up = 0  # how many connections have
        self._client_id = client_id
        self._troubles: dict[str, _Trouble] = {}
        self._told: dict[str, _Told] = {}  # the other ones, by what they are about

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
            self.detail("%s", error)
            return
        others = _others(trouble.left_out, "failures", now - trouble.told_at)
        log.warning("%s: %s%s", self._client_id, error, others)
        trouble.told_at, trouble.left_out, trouble.told = now, 0, True

    def works(self, broker: str, now: float) -> None:
        """A connection to ``broker`` has come up."""
        self.come_up += 1
        trouble = self._troubles.get(broker)
        if trouble is None or not trouble.told:
            self.detail("connected to %s", broker)
        else:
            after = f"after {now - trouble.since:.3g} s, {trouble.failures} failures"
            log.warning("%s: %s is connected again %s", self._client_id, broker, after)
        if trouble is not None:
            trouble.failures, trouble.told = 0, False

    def is_failing(self, broker: str) -> bool:
        """Whether the last connection to ``broker``, or the attempt to make one, has failed."""
        trouble = self._troubles.get(broker)
        return trouble is not None and trouble.failures > 0

    @property
    def tells_details(self) -> bool:
        """True while ``detail`` is heard: what is costly to find out may be left out otherwise."""
        return log.isEnabledFor(DEBUG)

    def detail(self, what: str, *arguments: object) -> None:
        """What only those want to know who look for a mistake."""
        log.debug("%s: " + what, self._client_id, *arguments)

    def warn(self, what: str) -> None:
        """Something rare that users should know of."""
        log.warning("%s: %s", self._client_id, what)

    def seldom(self, what: str, text: str, now: float) -> None:
        """Tell ``text``: each ``what`` once per ``INTERVAL``, with how often it was left out."""
        told = self._told.get(what)
        if self._is_news(what, now):
            others = "" if told is None else _others(told.left_out, "times", now - told.at)
            log.warning("%s: %s%s", self._client_id, text, others)

    def _is_news(self, what: str, now: float) -> bool:
        told = self._told.get(what)
        if told is not None and now - told.at < INTERVAL:
            told.left_out += 1
            return False
        if told is None and len(self._told) >= KEPT:
            self._told.clear()
        self._told[what] = _Told(now)
        return True

    def mistake(self, what: str, error: BaseException, now: float) -> None:
        """Something is broken, here or in a transport: told with its stack, but not each time."""
        if not self._is_news(what, now):
            return
        # As text: a handler that keeps records would keep the frames, and the memory they look at.
        stack = "".join(traceback.format_exception(error)).rstrip()
        log.error("%s: %s\n%s", self._client_id, what, stack)

    def _make_room(self) -> None:
        if len(self._troubles) >= KEPT:
            del self._troubles[min(self._troubles, key=lambda name: self._troubles[name].told_at)]


def _others(left_out: int, what: str, seconds: float) -> str:
    return f" ({left_out} more {what} in the last {seconds:.0f} s)" if left_out else ""
