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
    """A job failed. A task had an error that is not retriable, or all attempts of a task failed.

    ``__cause__`` is the error of the task if it is not retriable, else None. ``task`` is the number
    of its Spark partition, or -1 if Spark did not report it. ``result`` is a ``WriteResult`` of
    what the other tasks wrote, or None if that is not known.
    """

    def __init__(self, message: str, *, task: int, result: Any = None) -> None:
        self.task = task
        self.result = result
        super().__init__(message)
