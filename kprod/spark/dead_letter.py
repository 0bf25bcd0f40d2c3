"""A record for the dead-letter topic: the row as it was, and why it is there."""

from __future__ import annotations

from typing import Any

from kprod.errors import BrokerError, PartitionError, RecordTooLargeError
from kprod.spark.record_shapes import SendArguments
from kprod.spark.task_identity import TaskIdentity
from kprod.types import Header

EXCERPT = 16_384
"""Bytes that are kept of a value that is too large: no topic could take it as it is."""

TOO_LARGE = 10


def dead_letter(
    row: SendArguments, error: BaseException, task: TaskIdentity, topic: str
) -> SendArguments:
    """What to send to ``topic`` for a ``row`` that failed with ``error``.

    Key, value, headers and timestamp are those of the row. Headers whose names begin with
    ``kprod.dlq.`` say why, whence and where to; of a value that is too large there is the
    beginning, and its size.
    """
    wanted, value, key, headers, partition, timestamp = row
    told: dict[str, Any] = {
        "reason": _reason(error),
        "message": error,
        "topic": wanted,
        "partition": partition,
        "timestamp": timestamp,
        "column": _column(error),
        "application": task.application,
        "stage": task.stage,
        "task": task.partition,
        "attempt": task.attempt,
    }
    if _is_too_large(error):
        told["truncated"] = sum(len(data) for data in (key, value) if data is not None)
        value, key, headers = _beginning(value), _beginning(key), []
    own: list[Header] = [
        (f"kprod.dlq.{name}", str(what).encode())
        for name, what in told.items()
        if what not in (None, "")
    ]
    return topic, value, key, [*(headers or ()), *own], None, _possible(timestamp)


def _reason(error: BaseException) -> str:
    return error.name if isinstance(error, BrokerError) else type(error).__name__


def _column(error: BaseException) -> str:
    """The role of the column that is to blame, as far as the error tells."""
    if isinstance(error, PartitionError):
        return "partition"
    said = str(error)
    named = ("timestamp", "header", "topic", "key")
    return next((name for name in named if f"its {name}" in said or f"no {name}" in said), "value")


def _is_too_large(error: BaseException) -> bool:
    refused = isinstance(error, BrokerError) and error.code == TOO_LARGE
    return refused or isinstance(error, RecordTooLargeError)


def _beginning(data: Any) -> bytes | None:
    return None if data is None else bytes(data[:EXCERPT])


def _possible(timestamp: int | None) -> int | None:
    return timestamp if timestamp is not None and 0 <= timestamp < 1 << 62 else None
