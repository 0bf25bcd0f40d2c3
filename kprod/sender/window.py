"""The bytes without an answer that one broker may have, and the size that its batches may reach.

As TCP's congestion window (RFC 5681) it is earned by what arrives and lost with what does not. A
network that breaks off every connection after some bytes, or that carries fewer bytes in
``request_timeout_ms`` than a request has, would never let a large batch through: its repetition is
as large as the first attempt.
"""

from __future__ import annotations

from collections.abc import Callable

FOREVER = float("inf")


class Window:
    """The window of one broker. Bytes are those of batches; times are seconds of one clock.

    ``size`` begins with ``least``, a batch that has not grown. Until it has doubled back to half of
    its size at the last loss it rises by the bytes answered (slow start), then by ``least`` for
    every window that is answered, up to ``most``. It rises no further than the bytes carried in
    ``patience`` seconds, measured by the time an answer took beyond the quickest answer. A loss
    takes it back to ``least``: one batch that has not grown goes at a time. ``changed`` gets every
    new size.

    Batches may never be larger than ``size``. Requests are not held back before the first loss, or
    the first answer that took so much longer: until then nothing speaks against them.

    Thread: the sender's only.
    """

    __slots__ = (
        "_changed",
        "_fell_at",
        "_half",
        "_least",
        "_most",
        "_patience",
        "_quickest",
        "limits",
        "size",
    )

    def __init__(
        self, least: int, most: int, patience: float, changed: Callable[[int], None]
    ) -> None:
        self._least = least
        self._most = max(least, most)
        self._patience = patience
        self._changed = changed
        self._half = self._most  # where slow start ends
        self._fell_at = -FOREVER
        self._quickest = FOREVER
        self.size = least
        self.limits = False  # True: it limits requests, too
        changed(least)

    def room(self, under_way: int) -> int:
        """The bytes another request may have while ``under_way`` are unanswered; 0: it may not go.

        One batch may always go when nothing is under way, whatever its size.
        """
        if not self.limits:
            return self._most
        return max(self.size - under_way, 0 if under_way else 1)

    def answered(self, nbytes: int, carried: int, seconds: float) -> None:
        """A request of ``nbytes`` was answered; in these ``seconds`` ``carried`` bytes arrived."""
        self._quickest = min(self._quickest, seconds)
        longer = seconds - self._quickest
        bound = self._most
        if carried * self._patience < bound * longer:
            bound = int(carried * self._patience / longer)
        if longer > self._patience:
            self.limits = True
            self._half = max(self._least, min(self.size, bound))
            self._resize(self._half)
            return
        earned = nbytes if self.size < self._half else nbytes * self._least // self.size
        self._resize(max(self.size, min(self.size + earned, bound, self._most)))
        if self.size == self._most:
            self.limits = False  # the window has its former size again

    def lost(self, sent_at: float, now: float) -> None:
        """The connection ended with a request of ``sent_at`` under way; once for all of them."""
        if sent_at <= self._fell_at:
            return
        self._fell_at = now
        self.limits = True
        self._half = max(self._least, self.size // 2)
        self._resize(self._least)

    def _resize(self, size: int) -> None:
        if size != self.size:
            self.size = size
            self._changed(size)
