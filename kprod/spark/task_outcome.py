"""The outcome of a task, for the driver: a report, or the reason why no attempt can succeed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kprod.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ErrorCode,
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
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.rejected_rows import is_about_the_record
from kprod.spark.task_identity import this_task
from kprod.spark.write_result import PartitionReport

FOR_GOOD = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # after max_block_ms
        ErrorCode.OFFSET_METADATA_TOO_LARGE,  # of a marker
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Every attempt would be answered by the same."""

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


OUTCOME_SCHEMA = "outcome binary"
MOST_JOBS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """One attempt at a Spark partition that Spark counts as a success.

    With a ``failure`` it is none: but another attempt would end the same way, and Spark would make
    three. Immutable.
    """

    task: int
    report: PartitionReport | None = None
    failure: KprodError | None = None

    def pickled(self) -> bytes:
        """For the way to the driver."""
        return pickle.dumps(self)


def read_outcome(pickled: bytes) -> TaskOutcome:
    """Read a pickle of ``TaskOutcome.pickled`` from an executor of the same job."""
    outcome: TaskOutcome = pickle.loads(pickled)
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """Writes one Spark partition of the job ``job``: for ``mapInArrow`` with ``OUTCOME_SCHEMA``."""

    writer: PartitionWriter
    job: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Write the batches, and yield one row: the outcome. Raises what is worth an attempt."""
        import pyarrow as pa

        outcome = self.run(batches)
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([outcome.pickled()], pa.binary())})

    def run(self, batches: Iterable[Any]) -> TaskOutcome:
        """Write the batches. Raises what is worth another attempt."""
        return self._run(lambda: self.writer.write_batches(batches))

    def run_rows(self, rows: Iterable[Any]) -> TaskOutcome:
        """Write rows. Raises what is worth another attempt."""
        return self._run(lambda: self.writer.write_items(rows))

    def _run(self, write: Callable[[], PartitionReport]) -> TaskOutcome:
        task = this_task().partition
        if self.job in _failed:  # by another task of this process: this one would wait as long
            return TaskOutcome(task=task, failure=_failed[self.job])
        try:
            return TaskOutcome(task=task, report=write())
        except KprodError as error:
            if not is_fatal(error):
                raise
            while len(_failed) >= MOST_JOBS:
                _failed.pop(next(iter(_failed)))
            _failed[self.job] = error
            return TaskOutcome(task=task, failure=error)


_failed: dict[str, KprodError] = {}
"""Why jobs have failed in this process. One thread: a worker runs one task at a time."""
