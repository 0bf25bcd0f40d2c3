"""Errors of a Spark job as a whole."""

from __future__ import annotations

from typing import Any

from kprod.errors import KprodError


class SchemaError(KprodError, ValueError, number="KP-3001"):
    """A column of the DataFrame is missing, or its type cannot be written to a record.

    Raised on the driver, before a task starts.
    """


class JobFailed(KprodError, number="KP-3002"):
    """A Spark job failed. ``__cause__`` is Spark's own exception."""


class RowErrorLimitExceeded(KprodError, number="KP-3003"):
    """A task had more than ``max_row_errors`` invalid rows."""


class WriteFailed(KprodError, number="KP-3004"):
    """A job failed: a task had an error that is not retriable, or all attempts of a task failed.

    ``__cause__`` is the error of the task. ``task`` is the number of its Spark partition, or -1 if
    Spark did not report it. ``result`` is a ``WriteResult`` of what the other tasks wrote, or None
    if that is not known.
    """

    def __init__(self, message: str, *, task: int, result: Any = None) -> None:
        self.task = task
        self.result = result
        super().__init__(message)


class ExactlyOnceError(KprodError, number="KP-3101"):
    """A shard was not written, because rows could have been lost or duplicated."""


class MarkerError(ExactlyOnceError, number="KP-3102"):
    """The progress marker of a shard cannot be read, or some markers of a batch have expired."""


class StaleBatch(ExactlyOnceError, number="KP-3103"):
    """A later batch of the same job has already been written."""


class ShardCountChanged(ExactlyOnceError, number="KP-3104"):
    """A retried batch has a different number of shards than before.

    ``begun_with`` is the number of shards that the batch had at its first attempt.
    """

    def __init__(self, message: str, begun_with: int | None = None) -> None:
        self.begun_with = begun_with
        super().__init__(message)


class RowsChanged(ExactlyOnceError, number="KP-3105"):
    """A shard that has already been written has different rows in this attempt.

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
