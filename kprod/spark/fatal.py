"""Which failures of a task no other attempt could help."""

from __future__ import annotations

from collections.abc import Iterator

from kprod.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    InvalidTopicError,
    KprodError,
    UnsupportedVersionError,
)
from kprod.spark.errors import (
    MarkerError,
    RowErrorLimitExceeded,
    RowsChanged,
    ShardCountChanged,
    StaleBatch,
)
from kprod.spark.row_policy import is_about_the_record

FOR_GOOD = frozenset({3, 17, 29, 31, 35, 53, 58, 76})
"""The topic does not exist (after ``max_block_ms``) or has no such name, something is not allowed,
credentials are wrong, or the broker is too old."""

_KINDS = (
    AuthenticationError,
    ConfigError,
    InvalidTopicError,
    MarkerError,
    RowErrorLimitExceeded,
    RowsChanged,
    ShardCountChanged,
    StaleBatch,
    UnsupportedVersionError,
)


def is_fatal(error: BaseException) -> bool:
    """Whether the next attempt would fail with ``error``, too, and so would the other tasks."""
    return any(_is_fatal(one) for one in _causes(error))


def _is_fatal(error: BaseException) -> bool:
    if isinstance(error, BrokerError) and error.code in FOR_GOOD:
        return True
    return isinstance(error, KprodError) and (
        isinstance(error, _KINDS) or is_about_the_record(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__
