"""Logs of failed connections and records, which limit how often they write about one subject."""

from __future__ import annotations

import traceback
from collections.abc import Hashable
from dataclasses import dataclass
from logging import DEBUG

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


log = SenderLog(__name__)

INTERVAL = 60.0
"""Seconds between two lines about the same broker."""
KEPT = 1000
"""Maximum number of subjects to remember. When it is reached, all are forgotten."""


@dataclass(slots=True)
class _Line:
    at: float
    left_out: int = 0  # since then


class ConnectionLog:
    """Limits the log to one line per broker and ``INTERVAL``, with the number of suppressed lines.

    At level DEBUG, every connection that is made, fails or ends has a line. Times are seconds on
    the monotonic clock. Used only by the sender's thread.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._latest: dict[Hashable, _Line] = {}  # by subject

    @property
    def tells_details(self) -> bool:
        """True if ``detail`` writes lines. Check it before you compute an expensive detail."""
        return log.isEnabledFor(DEBUG)

    def detail(self, what: str, *arguments: object) -> None:
        """Log a detail for debugging."""
        log.debug("%s: " + what, self._client_id, *arguments)

    def tell(self, what: str) -> None:
        """Log what users may want to know of."""
        log.info("%s: %s", self._client_id, what)

    def warn(self, what: str) -> None:
        """Log a rare event that users should know of."""
        log.warning("%s: %s", self._client_id, what)

    def seldom(self, subject: str, text: str, now: float, what: str = "times") -> bool:
        """Log ``text``, at most once per ``INTERVAL`` and ``subject``; False: it was left out.

        The line contains the number of those that were suppressed: so many more ``what``.
        """
        before = self._admit(subject, now)
        if before is None:
            self.detail("%s", text)
            return False
        others = ""
        if before.left_out:
            others = f" ({before.left_out} more {what} in the last {now - before.at:.0f} s)"
        self.warn(text + others)
        return True

    def mistake(self, what: str, error: BaseException, now: float) -> None:
        """Log a bug of kprod or of a transport with its stack, at most once per ``INTERVAL``."""
        if self._admit(what, now) is None:
            return
        # As text: a handler that keeps records would keep the frames, and the memory they look at.
        stack = "".join(traceback.format_exception(error)).rstrip()
        log.error("%s: %s\n%s", self._client_id, what, stack)

    def unobserved(self, topic: str, records: int, error: KprodError, now: float) -> None:
        """Log that ``records`` of ``topic`` ended in ``error``, and no caller waits for them.

        There is one line per topic, cause and ``INTERVAL``, with the number of records.
        """
        if isinstance(error, TransactionAbortedError):
            return  # the call that aborts says so for the whole transaction
        before = self._admit((topic, _cause(error)), now, records)
        if before is None:
            return
        also = f" (and {before.left_out} since the last such line)" if before.left_out else ""
        log.warning(
            "%s: %s for topic %r failed%s, and nobody has asked for their outcome: %s;"
            " persisted: %s. get() or add_errback() of each record's future has its error.",
            self._client_id,
            counted(records, "record"),
            topic,
            also,
            error,
            error.persisted.name,
        )

    def _admit(self, subject: Hashable, now: float, count: int = 1) -> _Line | None:
        """Return the entry of the previous line about ``subject``; None: suppress this line.

        If there was no such line, the returned entry is empty.
        """
        latest = self._latest.get(subject)
        if latest is not None and now - latest.at < INTERVAL:
            latest.left_out += count
            return None
        if latest is None and len(self._latest) >= KEPT:
            self._latest.clear()
        self._latest[subject] = _Line(now)
        return latest or _Line(now)


def _cause(error: KprodError) -> str:
    return error.name if isinstance(error, BrokerError) else type(error).__name__
