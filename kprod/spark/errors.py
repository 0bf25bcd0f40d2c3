"""Errors of a Spark job as a whole."""

from __future__ import annotations

from typing import Any

from kprod.errors import KprodError


class SchemaError(KprodError, ValueError, number="KP-3001"):
    """A column of the DataFrame is missing or of a type that no record can carry.

    Raised on the driver, before a task starts.
    """


class JobFailed(KprodError, number="KP-3002"):
    """Spark has given up on a job; its own exception is the cause."""


class RowErrorLimitExceeded(KprodError, number="KP-3003"):
    """More rows of one task were invalid than ``max_row_errors`` allows."""


class WriteFailed(KprodError, number="KP-3004"):
    """A job has failed for good: the error was not retriable, or all attempts failed.

    ``__cause__`` says why.

    ``task`` is the number of the Spark partition that reported first; ``result`` (a
    ``WriteResult``) what the tasks that did not fail have written.
    """

    def __init__(self, message: str, *, task: int, result: Any = None) -> None:
        self.task = task
        self.result = result
        super().__init__(message)


class ExactlyOnceError(KprodError, number="KP-3101"):
    """A shard was not written, because its rows might be in the topic twice, or be missing."""


class MarkerError(ExactlyOnceError, number="KP-3102"):
    """The marker of a shard cannot be read, or some markers of a batch are gone."""


class StaleBatch(ExactlyOnceError, number="KP-3103"):
    """A later batch of the same job was written already."""


class ShardCountChanged(ExactlyOnceError, number="KP-3104"):
    """A batch came back with another number of shards; it was ``begun_with`` so many."""

    def __init__(self, message: str, begun_with: int | None = None) -> None:
        self.begun_with = begun_with
        super().__init__(message)


class RowsChanged(ExactlyOnceError, number="KP-3105"):
    """A shard that was written came back with other rows."""


class TransactionTooSlow(ExactlyOnceError, number="KP-3106"):
    """A task, or a whole atomic batch, took more than half of a transaction's time-out."""


class BatchNotCommitted(ExactlyOnceError, number="KP-3107"):
    """Nothing of an atomic batch is visible: what tasks had prepared was lost before the decision.

    The batch has to be written again.
    """


class BatchIncomplete(ExactlyOnceError, number="KP-3108"):
    """An atomic batch is decided, and not all of it is visible.

    ``visible`` and ``missing`` are numbers of shards. Written again under the same name, the batch
    is completed: the shards that are there are skipped, the others written.
    """

    def __init__(
        self, message: str, visible: tuple[int, ...] = (), missing: tuple[int, ...] = ()
    ) -> None:
        self.visible = visible
        self.missing = missing
        super().__init__(message)
