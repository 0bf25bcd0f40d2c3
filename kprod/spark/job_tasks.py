"""The tasks of a job, their answers to the driver, and the end of atomic batches."""

from __future__ import annotations

import logging
import math
import pickle
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
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
from kprod.quantities import counted
from kprod.spark.acknowledgements import is_about_the_record
from kprod.spark.errors import RowErrorLimitExceeded, WriteFailed
from kprod.spark.executor_producer import JobProducer, producer_options
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.python_worker import python_failure, this_task
from kprod.spark.shard_rows import TaskRows
from kprod.spark.spark_job import collect
from kprod.spark.write_result import COMMITTED, PREPARED, PartitionReport, WriteResult

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
"""Error codes that every other attempt would get, too."""

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
    """Whether the next attempt and the other tasks would fail with the same error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BrokerError) and cause.code in FOR_GOOD:
            return True
        if isinstance(cause, _KINDS) or is_about_the_record(cause):
            return True
        cause = cause.__cause__
    return False


OUTCOME_SCHEMA = "outcome binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome(WriterCommitMessage):
    """The result of one task attempt that Spark counts as successful, as sent to the driver.

    If the task has failed with an error that no retry would cure, ``failure`` is this error. It is
    returned instead of raised, so that Spark does not run the task again. Immutable.
    """

    task: int
    report: PartitionReport | None = None
    failure: KprodError | None = None


OURS = re.compile(r"^kprod\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
"""Matches the last line of a traceback that ends with one of kprod's errors."""
TASK = re.compile(r"Task (\d+) in stage \S+ failed (\d+) times")


def raise_in_words(text: str) -> None:
    """If a task failed with an error of kprod, raise an error without Spark's long text.

    ``text`` is the text of Spark's exception, which becomes the context of the new exception.
    """
    wrong_python = python_failure(text)
    if wrong_python is not None:
        raise wrong_python from None
    found, task = OURS.findall(text), TASK.search(text)
    if not found:
        return
    kind, message = found[-1]
    failed, number = "a task failed", -1
    if task is not None:
        number = int(task[1])
        failed = f"task {number} failed {counted(int(task[2]), 'time')}"
    raise WriteFailed(f"{failed}: {kind}: {message}", task=number) from None


def run_tasks(
    df: DataFrame,
    task: Callable[[Iterator[Any]], Any],
    title: str,
    progress: bool = False,
    longest: float | None = None,
) -> list[Any]:
    """Run ``task`` with the record batches of each partition, and return its results.

    Raises as ``raise_in_words``, else Spark's exception, and TimeoutError after ``longest``
    seconds.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        outcome = pa.array([pickle.dumps(task(batches))], pa.binary())
        yield pa.RecordBatch.from_pydict({"outcome": outcome})

    try:
        rows = collect(df.mapInArrow(run, OUTCOME_SCHEMA), title, progress, longest)
    except PySparkException as error:
        raise_in_words(str(error))
        raise
    return [pickle.loads(bytes(row["outcome"])) for row in rows]


def call_in_task(
    spark: SparkSession, title: str, function: Callable[[], Any], longest: float | None = None
) -> Any:
    """Run ``function`` on an executor, as a Spark job with one task, and return its result.

    This is for work that the driver cannot do, because it may be unable to reach the brokers, and
    may not have their password. Raises as ``run_tasks``.
    """

    def run(batches: Iterator[Any]) -> Any:
        _read_rest(batches)
        return function()

    (answer,) = run_tasks(spark.range(0, 1, 1, 1), run, title, longest=longest)
    return answer


def _read_rest(items: Iterator[Any], seconds: float = math.inf) -> None:
    """Read the input of a task to its end, for so many seconds.

    PySpark ends a worker whose task has not read its input to the end.
    """
    deadline = time.monotonic() + seconds
    for _ in items:
        if time.monotonic() > deadline:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """Writes one Spark partition of a job."""

    writer: PartitionWriter
    job: str

    def run(self, items: Iterable[Any]) -> TaskOutcome:
        """Write record batches or rows. Raises if another attempt may succeed."""
        task, started, rows = this_task().partition, time.monotonic(), TaskRows(items)
        if self.job not in _failed:
            try:
                return TaskOutcome(task=task, report=self.writer.write(rows))
            except KprodError as error:
                if not is_fatal(error):
                    raise
                _failed.clear()
                _failed[self.job] = error, time.monotonic() - started
        # The other tasks of this process would take as long to fail, so it is worth this time to
        # keep the process, which knows of the failure.
        failure, seconds = _failed[self.job]
        _read_rest(rows.items, seconds)
        return TaskOutcome(task=task, failure=failure)


_failed: dict[str, tuple[KprodError, float]] = {}
"""Why the last job that failed in this process did, and after how many seconds. No lock is needed:
a worker runs one task at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """Commits or aborts a batch. ``of`` is any shard of the batch.

    This runs where brokers can be reached and secrets are available: in a Python worker of the
    driver, or in a separate task. ``commit`` and ``abort`` may be repeated, and other processes may
    call them at the same time. Immutable; can be pickled.
    """

    of: Shard
    shards: int
    prepared: tuple[PreparedShard, ...]
    options: Mapping[str, Any] = field(repr=False)  # may hold passwords
    is_atomic: bool = True

    def commit(self) -> Ended:
        """Store the commit decision, and commit the batch. Raises as ``atomic.commit``."""
        return self.follow(
            lambda patience: atomic.commit(self.of, self.shards, self.prepared, patience)
        )

    def abort(self) -> Ended:
        """Abort the batch, or commit it if its commit decision is stored. Raises as ``commit``.

        If the batch is not atomic, shards that are already committed stay; open transactions are
        aborted.
        """
        if not self.is_atomic:
            return self.follow(lambda _: atomic.abandon(self.of))
        return self.follow(lambda _: atomic.abort(self.of, self.prepared))

    def follow(self, ending: Callable[[float], Ending]) -> Ended:
        """Call ``ending`` with ``Runner.patience``, and execute its steps. Raises as Runner."""
        options, lend = producer_options(self.options), JobProducer(options=self.options).lend_alone
        with Runner(shard=self.of, options=options, lend=lend) as runner:
            return runner.follow(ending(runner.patience))


log = logging.getLogger(__name__)

ENDED = (BatchIncomplete, BatchNotCommitted, TransactionTooSlow)
"""Errors after which nothing is left to commit or abort."""

RunsEnd = Callable[[BatchEnd, bool], Ended | KprodError]
"""Commits (True) or aborts a batch. Returns an error if no other attempt could succeed; raises
others."""


def end_here(end: BatchEnd, commits: bool) -> Ended | KprodError:
    """Commit or abort in this process: a task, or the Python worker where a data source commits."""
    try:
        ended = end.commit() if commits else end.abort()
    except KprodError as error:
        if isinstance(error, ENDED) or is_fatal(error):
            return error
        raise
    what = "committed" if ended.committed else "aborted"
    log.info("batch %d of %r was %s", end.of.batch, end.of.job_name, what)
    return ended


LONGEST_ABORT = 300.0
"""Seconds. The executors may be gone, and the caller waits for the error of its job."""


def end_in_task(spark: SparkSession, end: BatchEnd, commits: bool) -> Ended | KprodError:
    """Commit or abort in a Spark job with one task. An abort ends after ``LONGEST_ABORT``."""
    title = f"kprod: {'commit' if commits else 'abort'} batch {end.of.batch} of {end.of.job}"
    longest = None if commits else LONGEST_ABORT
    ended: Ended | KprodError = call_in_task(spark, title, partial(end_here, end, commits), longest)
    return ended


def raise_failure(
    outcomes: Sequence[TaskOutcome], result: WriteResult | None = None, others: str = ""
) -> None:
    """If a task has an error that is not retriable, raise WriteFailed for the first such task.

    ``others`` says what became of the other tasks; by default, what they wrote as in ``result``.
    """
    if result is not None:
        others = f"; the other tasks wrote {result.records:,} records"
    for found in outcomes:
        if found.failure is not None:
            raise WriteFailed(
                f"task {found.task} failed permanently: {type(found.failure).__name__}:"
                f" {found.failure}{others}",
                task=found.task,
                result=result,
            ) from found.failure


def commit_batch(
    writer: PartitionWriter, outcomes: Sequence[TaskOutcome], run: RunsEnd
) -> list[TaskOutcome]:
    """Commit everything that the tasks have prepared, or nothing; return the new outcomes.

    If a task has failed permanently, the batch is aborted. If the commit fails after the commit
    decision was stored, a second attempt completes the commit. Raises WriteFailed, which says what
    is visible, and Spark's exceptions.
    """
    end = _batch_end(writer, outcomes)
    if end is None or not end.is_atomic:
        return list(outcomes)
    if any(found.failure is not None for found in outcomes):
        abort_batch(writer, outcomes, run)
        raise_failure(
            outcomes,
            others="; the transactions of the other tasks were aborted, unless the commit decision"
            " was already stored",
        )
    if not end.prepared:
        return list(outcomes)
    try:
        ended = run(end, True)
    except BaseException as error:  # of Spark's, or Ctrl-C
        if not abort_batch(writer, outcomes, run, error):
            raise
        if not isinstance(error, Exception):
            error.add_note("kprod has committed the batch: do not write it again")
            raise
        log.warning("the commit failed, and was completed by a second attempt: %s", error)
    else:
        if not isinstance(ended, Ended):
            raise WriteFailed(f"{type(ended).__name__}: {ended}", task=-1) from ended
    return [
        replace(found, report=replace(report, delivered=COMMITTED, prepared=None))
        if (report := found.report) is not None and report.delivered == PREPARED
        else found
        for found in outcomes
    ]


def abort_batch(
    writer: PartitionWriter,
    outcomes: Sequence[TaskOutcome],
    run: RunsEnd,
    because: BaseException | None = None,
) -> bool:
    """Abort what tasks have left open or prepared. If the commit decision is stored, commit it.

    Returns whether all that these tasks have prepared is committed. Called when the job has ended
    or was cancelled; ``because`` of this error, which is logged first, as aborting may take long.
    Errors are only logged, because transactions that remain open are aborted by the next run of the
    job or by their timeout.
    """
    if writer.terms is None:
        return False
    if because is not None:
        said = "".join(traceback.format_exception_only(because)).partition("\n")[0]
        log.warning("open transactions are aborted because of %s", said)
    end = _batch_end(writer, outcomes)
    if end is None:
        job = writer.terms.job_id or "QUERY"
        _warn(f"{writer.terms.prefix}.{job}", "Spark does not report the id of the query")
        return False
    try:
        ended: Any = run(end, False)
    except Exception as error:  # whatever Spark raises: the error of the job comes first
        ended = error
    if not isinstance(ended, Ended):
        _warn(end.of.job_name, ended)
        return False
    return ended.committed and ended.as_prepared


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
