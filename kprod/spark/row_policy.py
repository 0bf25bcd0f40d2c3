"""What becomes of a row that no record can be made of, or that the broker refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kprod.errors import (
    BrokerError,
    ConfigError,
    InvalidRecordError,
    InvalidTopicError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)

OnRowError = Literal["fail", "skip", "dead_letter"]

REFUSED_CODES = frozenset({10, 32, 87})
"""MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD: no attempt makes the record better."""

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


def is_about_the_record(error: BaseException | None) -> bool:
    """Whether the record itself is at fault, so that no attempt and no broker could store it."""
    if isinstance(error, BrokerError):
        return error.code in REFUSED_CODES
    return isinstance(error, _OF_THE_RECORD)
