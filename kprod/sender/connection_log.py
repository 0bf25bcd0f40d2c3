"""The log of a sender, which limits how often it writes about one subject."""

from __future__ import annotations

import traceback
from collections.abc import Hashable
from logging import ERROR, WARNING
from typing import Any

from kprod.errors import BrokerError, KprodError, TransactionAbortedError
from kprod.quantities import counted
from kprod.sender_log import SenderLog


def forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks, whose frames refer to memory of batches that were being written.

    The error may be kept for a long time, and must not keep that memory.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


INTERVAL = 60.0
"""Seconds between two lines about the same subject."""
KEPT = 1000
"""Maximum number of subjects to remember. When it is reached, all are forgotten."""


class ConnectionLog(SenderLog):
    """Begins each line with the client id.

    At level DEBUG, every connection that is made, fails or ends has a line. Times are seconds on
    the monotonic clock. Used only by the owner of the loop.
    """

    def __init__(self, client_id: str) -> None:
        super().__init__(__name__)
        self._client_id = client_id
        self._latest: dict[Hashable, tuple[float, int]] = {}
        """By subject: when it had a line, and how many were left out since."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(level, f"%s: {msg}", self._client_id, *args, **kwargs)

    def seldom(
        self,
        subject: Hashable,
        text: str,
        now: float,
        what: str = "times",
        *,
        count: int = 1,
        level: int = WARNING,
    ) -> bool:
        """Log ``text``, at most once per ``INTERVAL`` and ``subject``; else as a detail.

        True if it was logged. The line then says how many ``what`` were left out before it; this
        one counts as ``count``.
        """
        latest = self._latest.get(subject)
        if latest is not None and now - latest[0] < INTERVAL:
            self._latest[subject] = latest[0], latest[1] + count
            self.debug("%s", text)
            return False
        if latest is None and len(self._latest) >= KEPT:
            self._latest.clear()
        self._latest[subject] = now, 0
        if latest is not None and latest[1]:
            text += f" ({latest[1]} more {what} in the last {now - latest[0]:.0f} s)"
        self.log(level, "%s", text)
        return True

    def internal_error(self, what: str, error: BaseException, now: float) -> None:
        """Log a bug of kprod or of a transport with its stack, at most once per ``INTERVAL``."""
        # As text: a handler that keeps records would keep the frames, and the memory they look at.
        stack = "".join(traceback.format_exception(error)).rstrip()
        self.seldom(what, f"{what}\n{stack}", now, level=ERROR)

    def unobserved(self, topic: str, records: int, error: KprodError, now: float) -> None:
        """Log that ``records`` of ``topic`` ended in ``error``, and no caller waits for them.

        There is one line per topic, cause and ``INTERVAL``, with the number of records.
        """
        if isinstance(error, TransactionAbortedError):
            return  # the call that aborts says so for the whole transaction
        cause = error.name if isinstance(error, BrokerError) else type(error).__name__
        text = (
            f"{counted(records, 'record')} for topic {topic!r} failed, and nobody has asked for"
            f" their outcome: {error}; persisted: {error.persisted.name}. get() or add_errback() of"
            " each record's future has its error."
        )
        self.seldom((topic, cause), text, now, "records", count=records)
