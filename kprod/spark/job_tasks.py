"""The tasks of a job: what each returns to the driver; committing and aborting atomic batches."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage

from kprod.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ErrorCode,
    InvalidTopicError,
    KprodError,
    UnsupportedVersionError,
)
from kprod.exactly_once import atomic
from kprod.exactly_once.atomic import Ended, Ending
from kprod.exactly_once.errors import (
    BatchIncomplete,
    BatchNotCommitted,
    MarkerError,
    RowsChanged,
    ShardCountChanged,
    StaleBatch,
    TransactionTooSlow,
)
from kprod.exactly_once.runner import Runner
from kprod.exactly_once.shard import Shard
from kprod.exactly_once.steps import PreparedShard
from kprod.spark.acknowledgements import is_about_the_record
from kprod.spark.errors import RowErrorLimitExceeded, WriteFailed
from kprod.spark.executor_producer import producer_options
from kprod.spark.partition_writer import PartitionWriter, rows_of_task
from kprod.spark.python_worker import this_task
from kprod.spark.spark_job import collect
from kprod.spark.write_result import COMMITTED, PREPARED, PartitionReport

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
class TaskOutcome(WriterCommitMessage):
    """One attempt at a Spark partition that Spark counts as a success, as the driver gets it.

    With a ``failure`` it is none: but another attempt would end the same way, and Spark would make
    three. Immutable.
    """

    task: int
    report: PartitionReport | None = None
    failure: KprodError | None = None


def answer_row(answer: Any) -> Any:
    """The row of ``OUTCOME_SCHEMA`` by which a task answers the driver."""
    return pa.RecordBatch.from_pydict({"outcome": pa.array([pickle.dumps(answer)], pa.binary())})


def read_answer(row: Any) -> Any:
    """The answer of a task of the same job, from its ``answer_row``."""
    return pickle.loads(bytes(row["outcome"]))


def call_in_task(spark: SparkSession, title: str, function: Callable[[], Any]) -> Any:
    """What ``function`` returns on an executor, as a Spark job of one task.

    The driver may have no way to the brokers, nor their password.
    """

    def called(_: Iterator[Any]) -> Iterator[Any]:
        yield answer_row(function())

    (row,) = collect(spark.range(0, 1, 1, 1).mapInArrow(called, OUTCOME_SCHEMA), title, False)
    return read_answer(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """Writes one Spark partition of the job ``job``: for ``mapInArrow`` with ``OUTCOME_SCHEMA``."""

    writer: PartitionWriter
    job: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Write the batches, and yield one row: the outcome. Raises what is worth an attempt."""
        yield answer_row(self.run(batches))

    def run(self, items: Iterable[Any]) -> TaskOutcome:
        """Write record batches or rows. Raises what is worth another attempt."""
        task = this_task().partition
        if self.job in _failed:  # by another task of this process: this one would wait as long
            return TaskOutcome(task=task, failure=_failed[self.job])
        try:
            return TaskOutcome(task=task, report=self.writer.write(rows_of_task(items)))
        except KprodError as error:
            if not is_fatal(error):
                raise
            while len(_failed) >= MOST_JOBS:
                _failed.pop(next(iter(_failed)))
            _failed[self.job] = error
            return TaskOutcome(task=task, failure=error)


_failed: dict[str, KprodError] = {}
"""Why jobs have failed in this process. One thread: a worker runs one task at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """The end of the batch that ``of``, any of its shards, belongs to. Immutable; it pickles.

    It runs where brokers can be reached and secrets looked up: in a driver's Python worker, or in a
    task of its own. ``commit`` and ``abort`` may be called again, and by others at the same time.
    """

    of: Shard
    shards: int
    prepared: tuple[PreparedShard, ...]
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    is_atomic: bool = True

    def commit(self) -> Ended:
        """Decide that the batch counts, and commit it. Raises as ``atomic.commit``."""
        return self.follow(
            lambda patience: atomic.commit(self.of, self.shards, self.prepared, patience)
        )

    def abort(self) -> Ended:
        """Give the batch up, unless it is decided: then it is committed. Raises as ``commit``.

        Shards that are committed each by itself stay, and what tasks have left open is aborted.
        """
        if not self.is_atomic:
            return self.follow(lambda _: atomic.abandon(self.of))
        return self.follow(lambda _: atomic.abort(self.of, self.prepared))

    def follow(self, ending: Callable[[float], Ending]) -> Ended:
        """Take the steps of ``ending``, which gets ``Runner.patience``. Raises as the Runner."""
        with Runner(shard=self.of, options=producer_options(self.options)) as runner:
            return runner.follow(ending(runner.patience))


log = logging.getLogger(__name__)

ENDED = (BatchIncomplete, BatchNotCommitted, TransactionTooSlow)
"""After these nothing is left to be ended: what could be committed or aborted is."""

RunsEnd = Callable[[BatchEnd, bool], KprodError | None]
"""Commits (True) or aborts a batch; returns what no other attempt could help. Raises the rest."""


def end_here(end: BatchEnd, commits: bool) -> KprodError | None:
    """In this process: a driver's Python worker, where Spark has its data sources commit."""
    try:
        ended = end.commit() if commits else end.abort()
    except KprodError as error:
        if isinstance(error, ENDED) or is_fatal(error):
            return error
        raise
    what = "committed" if ended.committed else "aborted"
    log.info("batch %d of %r was %s", end.of.batch, end.of.job_name, what)
    return None


def end_in_task(spark: SparkSession) -> RunsEnd:
    """Runs the end as a Spark job of one task."""

    def run(end: BatchEnd, commits: bool) -> KprodError | None:
        title = f"kprod: {'commit' if commits else 'abort'} batch {end.of.batch} of {end.of.job}"
        failure: KprodError | None = call_in_task(spark, title, partial(end_here, end, commits))
        return failure

    return run


def commit_batch(
    writer: PartitionWriter, outcomes: Sequence[TaskOutcome], run: RunsEnd
) -> list[TaskOutcome]:
    """Commit what the tasks have prepared, all of it or nothing; the outcomes as they are then.

    Where a task has failed for good, the batch is aborted. Raises WriteFailed, which says what is
    visible, and what Spark raises.
    """
    end = _batch_end(writer, outcomes)
    if end is None or not end.is_atomic:
        return list(outcomes)
    for found in outcomes:
        if found.failure is not None:
            abort_batch(writer, outcomes, run)
            raise WriteFailed(
                f"task {found.task} failed permanently: {type(found.failure).__name__}:"
                f" {found.failure}; the transactions of the other tasks were aborted, unless the"
                " commit decision was already stored",
                task=found.task,
            ) from found.failure
    if not end.prepared:
        return list(outcomes)
    try:
        failure = run(end, True)
    except BaseException:  # of Spark's, or Ctrl-C: it goes forward if the batch is decided
        abort_batch(writer, outcomes, run)
        raise
    if failure is not None:
        raise WriteFailed(f"{type(failure).__name__}: {failure}", task=-1) from failure
    return [_committed(found) for found in outcomes]


def abort_batch(writer: PartitionWriter, outcomes: Sequence[TaskOutcome], run: RunsEnd) -> None:
    """Give up what tasks have left open or prepared, or go forward if the batch is decided.

    The job has ended or was cancelled. What cannot be done now is logged: the next run of the job
    fences it, or its time-out ends it.
    """
    if writer.terms is None:
        return
    end = _batch_end(writer, outcomes)
    if end is None:
        _warn(f"{writer.terms.prefix}.QUERY", "Spark does not report the id of the query")
        return
    try:
        failure = run(end, False)
    except Exception as error:  # whatever Spark raises: the error of the job comes first
        failure = error  # type: ignore[assignment]
    if failure is not None:
        _warn(end.of.job_name, failure)


def _warn(job_name: str, why: object) -> None:
    log.warning(
        "open transactions of %r were not aborted: %s. They stay open until the next run of the"
        " job, their timeout, or `kprod transactions abort --prefix %s.`",
        job_name,
        why,
        job_name,
    )


def _batch_end(writer: PartitionWriter, outcomes: Sequence[TaskOutcome]) -> BatchEnd | None:
    terms = writer.terms
    if terms is None:
        return None
    reports = [found.report for found in outcomes if found.report is not None]
    prepared = tuple(one.prepared for one in reports if one.prepared is not None)
    of = prepared[0].shard if prepared else terms.shard_of_driver()
    if of is None:
        return None  # the driver does not know which query this is
    tasks = 1 + max((found.task for found in outcomes), default=0)
    return BatchEnd(
        of=replace(of, attempt=None),
        shards=tasks if of.shards is None else of.shards,
        prepared=prepared,
        options=writer.producer.options,
        is_atomic=terms.is_atomic,
    )


def _committed(found: TaskOutcome) -> TaskOutcome:
    report = found.report
    if report is None or report.delivered != PREPARED:
        return found
    return replace(found, report=replace(report, delivered=COMMITTED, prepared=None))
