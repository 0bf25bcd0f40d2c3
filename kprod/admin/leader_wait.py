"""Waits for the leaders of a topic, and reports missing ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple

from kprod.clock import monotonic
from kprod.errors import BrokerError, KprodError, KprodTimeoutError
from kprod.wire.control import PartitionReply

_MOST_NAMES: Final = 10
_PAUSE: Final = 0.05
_SILENT: Final = 1.0  # seconds; an election and a new topic take less


def _ignore(_missing: KprodError) -> None:
    pass


class LeaderWait(NamedTuple):
    """Which leaders of a topic to wait for, and how long. Immutable.

    ``seconds`` is a limit in addition to the client's deadline. If ``partition`` is given, only
    that partition must have a leader; otherwise, all partitions must. After a second, ``notify`` is
    called with an error that says what is missing, and again whenever that changes.
    """

    seconds: float = inf
    partition: int | None = None
    notify: Callable[[KprodError], object] = _ignore


ALL_LEADERS: Final = LeaderWait()


class BegunWait:
    """A wait that has begun because something is missing. Not thread-safe."""

    def __init__(self, wait: LeaderWait, deadline: float = inf) -> None:
        """End at ``deadline``, a time of ``time.monotonic``, or after ``wait.seconds``."""
        now = monotonic()
        self._deadline = min(deadline, now + wait.seconds)
        self._silent_until = now + _SILENT
        self._notify = wait.notify
        self._last = ""

    def pause(self, missing: KprodError) -> None:
        """Pause before the next attempt. Raises ``missing`` if the time is up."""
        now = monotonic()
        if now + _PAUSE > self._deadline:
            raise missing
        if now >= self._silent_until and str(missing) != self._last:
            self._last = str(missing)
            self._notify(missing)
        time.sleep(_PAUSE)


def without_leader(topic: str, partitions: Sequence[PartitionReply]) -> KprodTimeoutError:
    """The error about partitions without a leader."""
    if not partitions:
        return KprodTimeoutError(f"topic {topic!r} has no partitions yet")
    names = ", ".join(f"{topic}-{part.partition}" for part in partitions[:_MOST_NAMES])
    if len(partitions) > _MOST_NAMES:
        names += f" and {len(partitions) - _MOST_NAMES} more"
    has = "has no leader" if len(partitions) == 1 else "have no leader"
    code = next((part.error_code for part in partitions if part.error_code), 0)
    reason = f": the brokers answer {BrokerError(code).name}" if code else ""
    return KprodTimeoutError(f"{names} {has}{reason}")
