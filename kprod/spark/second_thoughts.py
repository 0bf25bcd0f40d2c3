"""What is done with records that came back from the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod.errors import InvalidBatchError, KprodError
from kprod.spark.record_shapes import SendArguments
from kprod.spark.rejected_rows import RejectedRows
from kprod.spark.row_policy import is_about_the_record


class SecondThoughts:
    """Rejects the rows that the broker refused, and sends those again that were in bad company.

    Thread: one.
    """

    def __init__(self, rejected: RejectedRows, send_again: Callable[..., Any]) -> None:
        self._rejected = rejected
        self._send_again = send_again

    def take(self, row: SendArguments, error: KprodError) -> bool:
        """Whether the row was taken care of; else its error is the task's."""
        if isinstance(error, InvalidBatchError):
            self._send_again(*row)
            return True
        if is_about_the_record(error):
            self._rejected.take(row, error)
            return True
        return False
