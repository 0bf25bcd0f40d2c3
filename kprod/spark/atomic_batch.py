"""Ends an atomic batch: what the driver does once all tasks have prepared, or have failed."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from kprod.errors import KprodError, ProducerFencedError
from kprod.spark.errors import (
    BatchIncomplete,
    BatchNotCommitted,
    ExactlyOnceError,
    TransactionTooSlow,
    WriteFailed,
)
from kprod.spark.exactly_once import atomic
from kprod.spark.exactly_once.atomic import Ended, Ending
from kprod.spark.exactly_once.marker import SHARE_OF_TIME, check_batch_time
from kprod.spark.exactly_once.producer_steps import ProducerSteps, is_over
from kprod.spark.exactly_once.shard import Shard
from kprod.spark.exactly_once.steps import (
    CheckTime,
    CommitMarkers,
    EndAll,
    FenceAll,
    Fenced,
    ListOpen,
    Pause,
    PreparedShard,
    ReadMarker,
    Step,
    TakeOver,
)
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.producer_options import transaction_seconds
from kprod.spark.task_outcome import OUTCOME_SCHEMA, TaskOutcome, is_fatal
from kprod.spark.write_result import COMMITTED, PREPARED
from kprod.transactional.two_phase_commit import PreparedTransaction


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
    transaction_timeout: float  # seconds
    sleep: Callable[[float], None] = time.sleep

    def commit(self) -> Ended:
        """Decide that the batch counts, and commit it. Raises as ``atomic.commit``."""
        return self.follow(atomic.commit(self.of, self.shards, self.prepared, self.patience))

    def abort(self) -> Ended:
        """Give the batch up, unless it is decided: then it is committed. Raises as ``commit``."""
        return self.follow(atomic.abort(self.of, self.prepared))

    @property
    def patience(self) -> float:
        """How many seconds a driver that was fenced waits for the decision of the other one."""
        return self.transaction_timeout * SHARE_OF_TIME

    def follow(self, ending: Ending) -> Ended:
        """Take the steps of ``ending``. Raises ExactlyOnceError, and what brokers refuse.

        Raises ProducerFencedError when another driver has taken over and does not decide.
        """
        answer: Any = None
        raised: Fenced | ExactlyOnceError | None = None
        with ProducerSteps(self.options, self.of.place) as steps:
            while True:
                try:
                    step = ending.send(answer) if raised is None else ending.throw(raised)
                except StopIteration as end:
                    ended: Ended = end.value
                    return ended
                except Fenced as lost:
                    raise ProducerFencedError(str(lost)) from lost.__cause__
                answer, raised = None, None
                try:
                    answer = self._take(step, steps)
                except ExactlyOnceError as error:
                    raised = error
                except KprodError as error:
                    if not (isinstance(error, ProducerFencedError) or is_over(error)):
                        raise
                    raised = Fenced(f"{self.of.job_name}: {error}")
                    raised.__cause__ = error

    def _take(self, step: Step, steps: ProducerSteps) -> Any:
        match step:
            case TakeOver(name):
                steps.take_over(name)
            case ReadMarker(group, wait):
                return steps.read(group, asked=self.of.layout_id, wait=wait)
            case ListOpen(job_name):
                return steps.opened(job_name)
            case EndAll(transactions, committed):
                return steps.end_all(transactions, committed=committed)
            case _:
                self._take_other(step, steps)
        return None

    def _take_other(self, step: Step, steps: ProducerSteps) -> None:
        match step:
            case CommitMarkers(name, markers):
                producer = steps.producer(name)
                producer.partitions_for(self.of.topic)  # it exists, or is made
                producer.begin_transaction()
                for group, marker in markers:
                    steps.add_marker(name, group, marker)
                producer.commit_transaction()
            case FenceAll(names):
                steps.fence_all(names)
            case CheckTime(transactions):
                self._check_time(transactions)
            case Pause(seconds):
                self.sleep(seconds)

    def _check_time(self, transactions: tuple[PreparedTransaction, ...]) -> None:
        began = [one.began_ms for one in transactions if one.began_ms is not None]
        if began:
            now = time.time_ns() / 1e9
            check_batch_time(self.of, min(began) / 1000, now, self.transaction_timeout)


log = logging.getLogger(__name__)

TOLD = (BatchIncomplete, BatchNotCommitted, TransactionTooSlow)
"""After these nothing is left to be ended: what could be committed or aborted is."""

RunsEnd = Callable[[BatchEnd, bool], KprodError | None]
"""Commits (True) or aborts a batch; returns what no other attempt could help. Raises the rest."""


def end_here(end: BatchEnd, commits: bool) -> KprodError | None:
    """In this process: a driver's Python worker, where Spark has its data sources commit."""
    try:
        ended = end.commit() if commits else end.abort()
    except KprodError as error:
        if isinstance(error, TOLD) or is_fatal(error):
            return error
        raise
    what = "committed" if ended.committed else "aborted"
    log.info("batch %d of %r was %s", end.of.batch, end.of.job_name, what)
    return None


@dataclass(frozen=True, slots=True)
class EndTask:
    """The same for ``mapInArrow``: executors reach the brokers, and know the secrets."""

    end: BatchEnd
    commits: bool

    def __call__(self, _: Iterator[Any]) -> Iterator[Any]:
        """Yield one row: the pickled answer."""
        import pyarrow as pa

        told = pickle.dumps(end_here(self.end, self.commits))
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([told], pa.binary())})


def end_in_task(spark: SparkSession) -> RunsEnd:
    """Runs the end as a Spark job of one task."""

    def run(end: BatchEnd, commits: bool) -> KprodError | None:
        asked = spark.range(0, 1, 1, 1).mapInArrow(EndTask(end, commits), OUTCOME_SCHEMA)
        told: KprodError | None = pickle.loads(bytes(asked.collect()[0]["outcome"]))
        return told

    return run


def commit_batch(
    writer: PartitionWriter, outcomes: Sequence[TaskOutcome], run: RunsEnd
) -> list[TaskOutcome]:
    """Commit what the tasks have prepared, all of it or nothing; the outcomes as they are then.

    Where a task has failed for good, the batch is aborted. Raises WriteFailed, which says what is
    visible, and what Spark raises.
    """
    end = _batch_end(writer, outcomes)
    if end is None:
        return list(outcomes)
    for found in outcomes:
        if found.failure is not None:
            abort_batch(writer, outcomes, run)
            raise WriteFailed(
                f"task {found.task} failed for good: {type(found.failure).__name__}:"
                f" {found.failure}; what the others had prepared of the batch is aborted, unless it"
                " was decided before",
                task=found.task,
            ) from found.failure
    if not end.prepared:
        return list(outcomes)
    try:
        failure = run(end, True)
    except Exception:
        abort_batch(writer, outcomes, run)
        raise
    if failure is not None:
        raise WriteFailed(f"{type(failure).__name__}: {failure}", task=-1) from failure
    return [_committed(found) for found in outcomes]


def abort_batch(writer: PartitionWriter, outcomes: Sequence[TaskOutcome], run: RunsEnd) -> None:
    """Give up what tasks have prepared, or go forward if the batch is decided.

    What cannot be done now is logged: the next run of the job fences it, or its time-out ends it.
    """
    end = _batch_end(writer, outcomes)
    if end is None:
        return
    try:
        failure = run(end, False)
    except Exception as error:  # whatever Spark raises: what the caller is told comes first
        failure = error  # type: ignore[assignment]
    if failure is not None:
        log.warning(
            "what was prepared of batch %d of %r is not ended; the next run does that, or the"
            " time-out of its transactions, or `kprod transactions`: %s",
            end.of.batch,
            end.of.job_name,
            failure,
        )


def _batch_end(writer: PartitionWriter, outcomes: Sequence[TaskOutcome]) -> BatchEnd | None:
    terms = writer.terms
    if terms is None or not terms.is_atomic:
        return None
    reports = [found.report for found in outcomes if found.report is not None]
    prepared = tuple(one.prepared for one in reports if one.prepared is not None)
    of = prepared[0].shard if prepared else terms.shard_of_driver()
    if of is None:
        return None  # nobody has told the driver which query this is: nothing is prepared
    tasks = 1 + max((found.task for found in outcomes), default=0)
    return BatchEnd(
        of=replace(of, attempt=None),
        shards=tasks if of.shards is None else of.shards,
        prepared=prepared,
        options=writer.options,
        transaction_timeout=transaction_seconds(writer.options),
    )


def _committed(found: TaskOutcome) -> TaskOutcome:
    report = found.report
    if report is None or report.delivered != PREPARED:
        return found
    return replace(found, report=replace(report, delivered=COMMITTED, prepared=None))
