"""Which Spark task this code runs in."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells tasks of a stream; it tells writers neither (MicroBatchExecution)."""
RUN = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """Spark's numbers of a task; -1 outside one. ``attempt`` counts from 0. Immutable.

    ``query`` and ``batch`` are those of a stream, and ``run`` tells one start of it from the next.
    """

    application: str | None
    stage: int
    partition: int
    attempt: int
    query: str | None = None
    batch: int | None = None
    run: str = ""


NO_TASK = TaskIdentity(application=None, stage=-1, partition=-1, attempt=-1)
"""What a driver is."""


def this_task() -> TaskIdentity:
    """The task of the calling thread."""
    context = TaskContext.get()
    if context is None:
        return NO_TASK
    application = context.getLocalProperty("spark.app.id")
    batch = context.getLocalProperty(BATCH)
    return TaskIdentity(
        application=application,
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        query=context.getLocalProperty(QUERY),
        batch=None if batch is None else int(batch),
        run=context.getLocalProperty(RUN) or application or "",
    )
