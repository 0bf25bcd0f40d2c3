"""Which Spark task this code runs in."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """Spark's numbers of a task; -1 outside one. ``attempt`` counts from 0. Immutable."""

    application: str | None
    stage: int
    partition: int
    attempt: int


def this_task() -> TaskIdentity:
    """The task of the calling thread."""
    context = TaskContext.get()
    if context is None:
        return TaskIdentity(application=None, stage=-1, partition=-1, attempt=-1)
    return TaskIdentity(
        application=context.getLocalProperty("spark.app.id"),
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
    )
