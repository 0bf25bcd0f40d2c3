"""Tells the log of records that failed and of whose outcome nobody asked to be told"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kprod.errors import BrokerError, KprodError, TransactionAbortedError
from kprod.sender_log import SenderLog

log = SenderLog(__name__)

INTERVAL = 60.0
"""Seconds between two lines about the same topic and cause."""
KEPT = 1000
"""Pairs of topic and cause that are remembered."""


@dataclass(slots=True)
class _Loss:
    told_at: float
    left_out: int = 0  # records since the last line


class UnreadFailures:
    """One line per topic, cause and ``INTERVAL``, with the number of records.

    Thread: the sender's only. ``monotonic`` is a clock in seconds.
    """

    def __init__(self, client_id: str, monotonic: Callable[[], float]) -> None:
        self._client_id = client_id
        self._monotonic = monotonic
        self._losses: dict[tuple[str, str], _Loss] = {}

    def failed(self, topic: str, records: int, error: KprodError) -> None:
        """So many records of ``topic`` ended in ``error``, and nobody waits for any of them."""
        if isinstance(error, TransactionAbortedError):
            return  # which is told of as a whole, to who has aborted it
        now, key = self._monotonic(), (topic, _cause(error))
        loss = self._losses.get(key)
        if loss is not None and now - loss.told_at < INTERVAL:
            loss.left_out += records
            return
        also = f" (and {loss.left_out} since the last such line)" if loss and loss.left_out else ""
        if loss is None and len(self._losses) >= KEPT:
            self._losses.clear()
        self._losses[key] = _Loss(now)
        log.warning(
            "%s: %d records for topic %r failed%s, and nobody has asked for their outcome: %s;"
            " persisted: %s. get() or add_errback() on what send returned tells of every record.",
            self._client_id,
            records,
            topic,
            also,
            error,
            error.persisted.name,
        )


def _cause(error: KprodError) -> str:
    return error.name if isinstance(error, BrokerError) else type(error).__name__
