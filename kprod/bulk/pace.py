"""How far a bulk call runs ahead of the sender: not until the memory is used up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

MOST_AHEAD = 16 * 1024 * 1024
"""Bytes in use; with little memory three quarters of it. What was written longer ago than that is
in no cache of the processor any more when it is sent."""
NAP_SECONDS = 0.0002
MOST_NAPS = 5
"""At one time: a sender that makes no room for a megabyte meanwhile is no faster than memory is."""


class Memory(Protocol):
    """What is asked of the memory of batches, in bytes."""

    @property
    def total(self) -> int:
        """All there is."""
        ...

    @property
    def available(self) -> int:
        """What nobody uses."""
        ...


class Pace:
    """Lets the sender catch up, if it is quick to. One thread.

    Who writes until no memory is left has to wait for every single batch, and is woken for each;
    and others that send have to wait, too. With brokers that are slower than memory there is
    nothing to win: the first time that was too short for the sender is the last time in a call,
    which so loses a millisecond.
    """

    def __init__(self, memory: Memory, nap: Callable[[float], None] = time.sleep) -> None:
        self._memory = memory
        self._nap = nap
        self._least = memory.total - min(MOST_AHEAD, memory.total * 3 // 4)
        self._ahead = self._in_vain = False

    def goes_ahead(self) -> None:
        """The call has batches that nobody knows yet. Before that it is never waited for: with one
        of a few records, or of a compressed topic, nothing would be won."""
        self._ahead = True

    def keep(self, most: float) -> None:
        """Wait a moment, at most so many seconds, if the call is far ahead."""
        if not self._ahead or self._in_vain:
            return
        naps = 0
        while naps * NAP_SECONDS < most and self._memory.available < self._least:
            if naps == MOST_NAPS:
                self._in_vain = True
                break
            self._nap(NAP_SECONDS)
            naps += 1
