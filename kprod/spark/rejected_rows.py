"""The rows of one task that no topic takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kprod.config.topic_options import is_topic_name
from kprod.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    InvalidBatchError,
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
from kprod.intake.dead_letters import beginning, is_too_large, letter_headers, reason_of
from kprod.spark.errors import RowErrorLimitExceeded
from kprod.spark.record_shapes import SendArguments
from kprod.spark.task_identity import TaskIdentity, this_task


def dead_letter(
    row: SendArguments, error: BaseException, task: TaskIdentity, topic: str
) -> SendArguments:
    """The dead letter for ``topic`` of a ``row`` that failed with ``error``.

    Key, value, headers and timestamp are those of the row. Headers with names that begin
    with ``kprod.dlq.`` say why, whence and where to; of a value that is too large there is the
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
        key, value = letter_bytes(key), letter_bytes(value)
        told["truncated"] = sum(len(data) for data in (key, value) if data is not None)
        value, key, headers = beginning(value), beginning(key), []
    return topic, value, key, [*(headers or ()), *letter_headers(told)], None, _possible(timestamp)


class LetterBytes(bytes):
    """Key or value of a dead letter: no serializer of the application is to see it."""


def letter_bytes(data: Any) -> LetterBytes | None:
    """Bytes for what no serializer makes bytes of: JSON if it is neither text nor bytes."""
    if data is None:
        return None
    if isinstance(data, bytes | bytearray | memoryview):
        return LetterBytes(data)
    text = data if isinstance(data, str) else json.dumps(data, default=repr, ensure_ascii=False)
    return LetterBytes(text.encode("utf-8", "replace"))


def _column(error: BaseException) -> str:
    """The role of the column that is to blame, as far as the error tells."""
    if isinstance(error, PartitionError):
        return "partition"
    said = str(error)
    named = ("timestamp", "header", "topic", "key")
    return next((name for name in named if f"its {name}" in said or f"no {name}" in said), "value")


def _possible(timestamp: int | None) -> int | None:
    return timestamp if timestamp is not None and 0 <= timestamp < 1 << 62 else None


OnRowError = Literal["fail", "skip", "dead_letter"]

REFUSED_CODES = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD}
)
"""No attempt makes the record better."""

_OF_THE_RECORD = (
    InvalidRecordError,
    InvalidTopicError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """``fail`` the task, ``skip`` and count the row, or send it to ``dead_letter_topic``.

    More than ``most`` such rows in one task fail it in any case; None: no limit. Immutable.
    """

    on_row_error: OnRowError = "fail"
    dead_letter_topic: str | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.on_row_error not in get_args(OnRowError):
            raise ConfigError(
                f"on_row_error: expected one of {list(get_args(OnRowError))};"
                f" got {self.on_row_error!r}"
            )
        if (self.on_row_error == "dead_letter") is not (self.dead_letter_topic is not None):
            raise ConfigError('on_row_error="dead_letter" and dead_letter_topic go together')
        topic: Any = self.dead_letter_topic
        most: Any = self.most
        if topic is not None and not (isinstance(topic, str) and is_topic_name(topic)):
            raise ConfigError(f"dead_letter_topic: {topic!r} is not the name of a topic")
        if most is not None and (type(most) is not int or most < 0):
            raise ConfigError(
                f"max_row_errors: expected a whole number from 0 on, or None; got {most!r}"
            )


def is_about_the_record(error: BaseException | None) -> bool:
    """Whether the record itself is at fault, so that no attempt and no broker could store it."""
    if isinstance(error, BrokerError):
        return error.code in REFUSED_CODES
    return isinstance(error, _OF_THE_RECORD)


class BrokerRefusals:
    """Rejects rows that the broker refused, and sends again those that shared a batch with them.

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


MOST_REASONS = 10


class RejectedRows:
    """Counts them, and sends them to the dead-letter topic where there is one. Thread: one."""

    def __init__(self, policy: RowPolicy, send: Callable[..., Any]) -> None:
        """``send`` sends a dead letter, given the arguments of ``KafkaProducer.send``."""
        self.skipped = 0
        self.dead_letters = 0
        self._policy = policy
        self._send = send
        self._reasons: Counter[str] = Counter()

    def take(self, row: SendArguments, error: BaseException) -> None:
        """Do with the row what the policy says. Raises RowErrorLimitExceeded beyond its limit."""
        kind = type(error).__name__
        self._reasons[f"{kind}: {error}" if len(self._reasons) < MOST_REASONS else kind] += 1
        topic = self._policy.dead_letter_topic
        if topic is None:
            self.skipped += 1
        else:
            self._send(*dead_letter(row, error, this_task(), topic))
            self.dead_letters += 1
        most = self._policy.most
        if most is not None and self.skipped + self.dead_letters > most:
            raise RowErrorLimitExceeded(
                f"more than {most:,} rows of this task are no records; the last: {error}"
            ) from error

    def reasons(self) -> list[str]:
        """The first of them, in words, and after those their kinds."""
        return list(self._reasons)
