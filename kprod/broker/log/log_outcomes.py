"""What a partition's log answers, and whom it tells of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kprod.broker.file_slice import FileSlice
from kprod.broker.log.transaction_index import AbortedTransaction

OnFailure: TypeAlias = Callable[[OSError], None]
"""Is told, without any lock, that the disk failed."""


def ignore_failure(_: OSError) -> None:
    """For a log that no directory has."""


class Appended(NamedTuple):
    """Where a batch is. ``log_append_time`` is -1 except for a duplicate, as Kafka answers it."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Fetched(NamedTuple):
    """What was found, and the state of the log at that moment."""

    records: FileSlice | bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] | None = None
    """For a reader of what is committed: the transactions among the records that are not."""
