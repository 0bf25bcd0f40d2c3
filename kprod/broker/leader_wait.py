"""How a reader waits for the leaders of a topic, and what it is told meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from kprod.errors import BrokerError, KprodError, KprodTimeoutError

_MOST_NAMES: Final = 10
_FOR_EVER: Final = 10 * 365 * 86_400.0
_PAUSE: Final = 0.05
_SILENT: Final = 1.0  # an election and a new topic take less


def _tell_nobody(_missing: KprodError) -> None:
    pass


class LeaderWait(NamedTuple):
    """How long to wait for the leaders of a topic, and for which. Immutable.

    ``seconds`` are an upper limit besides the deadline of the client. ``partition``: the only one
    that needs a leader; None: all. ``tell`` gets the error that says what is missing: after a
    second, and whenever that changes.
    """

    seconds: float = _FOR_EVER
    partition: int | None = None
    tell: Callable[[KprodError], object] = _tell_nobody


ALL_LEADERS: Final = LeaderWait()


class BegunWait:
    """The time since something was found missing. Not thread-safe."""

    def __init__(self, wait: LeaderWait, deadline: float = inf) -> None:
        """``deadline``: of ``time.monotonic``, an upper limit besides ``wait.seconds``."""
        now = time.monotonic()
        self._deadline = min(deadline, now + wait.seconds)
        self._silent_until = now + _SILENT
        self._tell = wait.tell
        self._told = ""

    def go_on(self, missing: KprodError) -> None:
        """Pause before the next attempt. Raises ``missing`` when the time is up."""
        now = time.monotonic()
        if now + _PAUSE > self._deadline:
            raise missing
        if now >= self._silent_until and str(missing) != self._told:
            self._told = str(missing)
            self._tell(missing)
        time.sleep(_PAUSE)


def without_leader(topic: str, partitions: Sequence[Any]) -> KprodTimeoutError:
    """The error about partitions without a leader, as Metadata describes them."""
    if not partitions:
        return KprodTimeoutError(f"topic {topic!r} has no partitions yet")
    names = ", ".join(f"{topic}-{part.partition_index}" for part in partitions[:_MOST_NAMES])
    if len(partitions) > _MOST_NAMES:
        names += f" and {len(partitions) - _MOST_NAMES} more"
    has = "has no leader" if len(partitions) == 1 else "have no leader"
    code = next((part.error_code for part in partitions if part.error_code), 0)
    reason = f": the brokers answer {BrokerError(code).name}" if code else ""
    return KprodTimeoutError(f"{names} {has}{reason}")
