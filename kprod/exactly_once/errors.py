"""Errors of shards and batches that are written exactly once."""

from __future__ import annotations

from kprod.errors import KprodError


class ExactlyOnceError(KprodError, number="KP-3101"):
    """A shard was not written, because rows could have been lost or duplicated."""


class MarkerError(ExactlyOnceError, number="KP-3102"):
    """The marker of a finished shard cannot be read, or some markers of a batch have expired."""


class StaleBatch(ExactlyOnceError, number="KP-3103"):
    """A later batch of the same job has already been written."""


class ShardCountChanged(ExactlyOnceError, number="KP-3104"):
    """A retried batch has a different number of shards than before.

    ``begun_with`` is the number of shards with which the batch was started.
    """

    def __init__(self, message: str, begun_with: int | None = None) -> None:
        self.begun_with = begun_with
        super().__init__(message)


class RowsChanged(ExactlyOnceError, number="KP-3105"):
    """This attempt has other rows than those that were already written for the shard.

    The query is not deterministic, or another job uses the same name.
    """


class TransactionTooSlow(ExactlyOnceError, number="KP-3106"):
    """A task or an atomic batch took more than half of ``transaction_timeout_ms``."""


class BatchNotCommitted(ExactlyOnceError, number="KP-3107"):
    """An atomic batch was not committed, and none of its rows are visible.

    For example, a transaction timed out before the commit decision was stored. Write the batch
    again.
    """


class BatchIncomplete(ExactlyOnceError, number="KP-3108"):
    """Only some shards of an atomic batch were committed. The other transactions were aborted.

    ``visible`` and ``missing`` are the numbers of the shards that were and were not committed. To
    complete the batch, write it again with the same name: only the missing shards are written.
    """

    def __init__(
        self, message: str, visible: tuple[int, ...] = (), missing: tuple[int, ...] = ()
    ) -> None:
        self.visible = visible
        self.missing = missing
        super().__init__(message)
