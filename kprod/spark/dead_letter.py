"""A record for the dead-letter topic: the row as it was, and why it is there."""

from __future__ import annotations

from typing import Any

from kprod.errors import PartitionError
from kprod.intake.dead_letters import beginning, is_too_large, letter_headers, reason_of
from kprod.spark.record_shapes import SendArguments
from kprod.spark.task_identity import TaskIdentity


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
        "reason": reason_of(error),
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
    if is_too_large(error):
        told["truncated"] = sum(len(data) for data in (key, value) if data is not None)
        value, key, headers = beginning(value), beginning(key), []
    return topic, value, key, [*(headers or ()), *letter_headers(told)], None, _possible(timestamp)


def _column(error: BaseException) -> str:
    """The role of the column that is to blame, as far as the error tells."""
    if isinstance(error, PartitionError):
        return "partition"
    said = str(error)
    named = ("timestamp", "header", "topic", "key")
    return next((name for name in named if f"its {name}" in said or f"no {name}" in said), "value")


def _possible(timestamp: int | None) -> int | None:
    return timestamp if timestamp is not None and 0 <= timestamp < 1 << 62 else None
