"""The driver's part of ``delivery="atomic"``: the end of a batch, here or in a task of its own."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from kprod.errors import KprodError
from kprod.spark.errors import BatchIncomplete, BatchNotCommitted, TransactionTooSlow, WriteFailed
from kprod.spark.exactly_once.batch_end import BatchEnd
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.producer_options import transaction_seconds
from kprod.spark.task_outcome import OUTCOME_SCHEMA, TaskOutcome, is_fatal
from kprod.spark.write_result import COMMITTED, PREPARED

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
    log.info("batch %d of %r was %s", end.of.batch, end.of.layout_id, what)
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
            end.of.layout_id,
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
