"""Writes a DataFrame or a micro-batch to Kafka, as one Spark job, and reports what was written."""

from __future__ import annotations

import functools
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Unpack

from pyspark.sql import DataFrame, SparkSession

from kprod.errors import ConfigError
from kprod.spark.delivery import NAMELESS, Scope, Terms
from kprod.spark.job_tasks import (
    JobTask,
    abort_batch,
    commit_batch,
    end_in_task,
    raise_failure,
    run_tasks,
)
from kprod.spark.options import (
    OF_THE_JOB,
    WriteOptions,
    concealed_for_tasks,
    divided,
    with_large_batches,
)
from kprod.spark.partition_writer import PartitionWriter, task_writer
from kprod.spark.python_worker import QUERY
from kprod.spark.repeatable import check_repeatable, micro_batch
from kprod.spark.schema_check import check_schema
from kprod.spark.shard_rows import check_count
from kprod.spark.sharded import (
    by_kafka_partition,
    check_gathers,
    check_placed,
    in_shards,
    is_sharded,
    partition_count,
    shard_count,
)
from kprod.spark.spark_job import (
    faster_settings,
    is_connect,
    is_true,
    most_tasks_at_once,
    slots,
)
from kprod.spark.task_sender import RateLimit
from kprod.spark.write_result import WriteResult, write_result

_log = logging.getLogger(__name__)


def write(df: DataFrame, topic: str | None = None, **options: Unpack[WriteOptions]) -> WriteResult:
    """Write every row of ``df`` to Kafka, and return when all records are acknowledged.

    Runs one Spark job (``mapInArrow``), in a classic session or on Spark Connect.
    ``WriteOptions`` describes the options. Only ``bootstrap_servers`` is required, and ``topic`` if
    there is no column of that name.

    By default, records are delivered at least once. With ``delivery="exactly_once"``, they are
    delivered once, even if Spark runs tasks again. ``delivery="atomic"`` also makes all rows
    visible together, after all of them are written. For these two, a job that may be started again
    needs a ``job_id`` and ``shards``. The rows are then shuffled as by ``kprod.spark.sharded``, and
    a second call with the same ``job_id`` and the same rows does not write them again.

    Raises:

    - ConfigError and SchemaError before a task starts.
    - ConfigError if the executors have another version of Python, or no kprod.
    - WriteFailed if all attempts of a task failed, or at once if the error is not retriable: an
      unknown topic, rejected credentials, missing permissions, an invalid row, a shard with
      different rows, an atomic batch that was not committed.
    - Spark's own exceptions for other failures.
    - KeyboardInterrupt on Ctrl-C, after the job is cancelled and its transactions are aborted.
    """
    options = concealed_for_tasks(options)
    job, writer = _prepared(topic, options)
    # Another call may write the same micro-batch again after a restart.
    found = None if writer.terms is None else micro_batch(df)
    if writer.terms is None or found is None:
        return _write(df, job, writer.named(Scope.CALL))
    if writer.terms.job_id is None:
        raise ConfigError(NAMELESS)
    return _write(df, job, writer.named(Scope.CALL, found.query, found.batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The options of ``WriteOptions`` that apply to the whole job. Immutable."""

    limit: RateLimit | None
    repartition: str | None = None
    results: str = "shards"
    progress: bool = True
    shards: int | None = None
    shard_by: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.repartition not in (None, "kafka"):
            raise ConfigError(f'repartition: expected "kafka" or None; got {self.repartition!r}')
        if self.results not in ("shards", "summary"):
            raise ConfigError(f'results: expected "shards" or "summary"; got {self.results!r}')
        if self.shards is not None:
            check_count(self.shards)
            if self.repartition is not None:
                raise ConfigError(
                    "shards and repartition cannot be combined: both distribute the rows"
                )
        elif self.shard_by is not None:
            raise ConfigError("shard_by needs shards, the number of shards")

    def place(self, df: DataFrame, terms: Terms | None) -> DataFrame:
        """The rows in their shards, if the options ask for shards."""
        if self.shards is not None:
            if is_sharded(df.schema):
                raise ConfigError(
                    "shards: the rows are those of a DataFrame that already called sharded():"
                    " remove shards, or that call"
                )
            df = in_shards(df, self.shards, self.shard_by, option="shard_by")
        check_placed(terms, df.schema)
        if is_sharded(df.schema):
            if self.repartition is not None:
                raise ConfigError(
                    "repartition: sharded() has placed the rows already: remove one of them"
                )
        elif terms is not None:  # Spark may run some of the tasks again
            check_repeatable(df, None, within_job=True)
        return df


def _prepared(topic: str | None, options: Mapping[str, Any]) -> tuple[_Job, PartitionWriter]:
    """The job and the writer that the options describe. Asks the schema registry, if there is one.

    Raises ConfigError for all that can be checked without the rows, and what the registry raises.
    """
    chosen, of_task = divided(options, OF_THE_JOB)
    rates = {each: chosen.pop(f"max_{each}_per_second", None) for each in ("records", "bytes")}
    limited = any(rate is not None for rate in rates.values())
    job = _Job(limit=RateLimit(**rates) if limited else None, **chosen)
    gathers = job.repartition == "kafka"
    writer = task_writer(topic, **(with_large_batches(of_task) if gathers else of_task))
    if gathers:
        check_gathers(writer)
    if job.shards is not None and writer.terms is None:
        raise ConfigError('shards is for delivery="exactly_once" and "atomic"')
    return job, writer


def _write(df: DataFrame, job: _Job, writer: PartitionWriter) -> WriteResult:
    """Run the job of ``write`` and ``foreach_batch``."""
    df = job.place(df, writer.terms)
    check_schema(df.schema, writer)
    started = time.monotonic()
    tasks = shard_count(df) if job.shards is None else job.shards
    if job.repartition is not None:
        tasks = partition_count(df, writer)
        df, writer = by_kafka_partition(df, writer, tasks)
    if job.limit is not None:
        df, at_once = _bounded(df, tasks)
        writer = replace(writer, limit=job.limit.shared_by(at_once))
    task = JobTask(writer=writer, job=uuid.uuid4().hex)
    title = f"kprod: write to {writer.plan.topic or 'topics of the rows'}"
    end = functools.partial(end_in_task, df.sparkSession)
    try:
        outcomes = run_tasks(df, task.run, title, job.progress)
    except BaseException as error:  # of Spark's, or Ctrl-C: no task runs any more
        abort_batch(writer, (), end, error)
        raise
    outcomes = commit_batch(writer, outcomes, end)
    reports = [found.report for found in outcomes if found.report is not None]
    result = write_result(reports, time.monotonic() - started)
    raise_failure(outcomes, result)
    _advise(df.sparkSession, result)
    return result if job.results == "shards" else replace(result, shards=())


def _advise(spark: SparkSession, result: WriteResult) -> None:
    """Log which settings would make the job faster for rows of this size, once in a process."""
    found: Mapping[str, str] = {}
    with suppress(Exception):  # the rows are written: a hint must not make the call fail
        found = faster_settings(
            lambda name: spark.conf.get(name, None),
            lambda: spark.version,
            result.records,
            result.bytes,
        )
    if found:
        _log_once(" and ".join(f"{name}={value}" for name, value in found.items()))


@functools.cache
def _log_once(settings: str) -> None:
    _log.info(
        "for rows of this size, Spark passes data to its Python workers faster with %s; see Useful"
        " settings in docs/spark-operation.md",
        settings,
    )


def _bounded(df: DataFrame, tasks: int | None) -> tuple[DataFrame, int]:
    """The frame, and the maximum number of its tasks that can run at the same time, now or later.

    ``tasks`` is the number of tasks of the frame, if known. If it is unknown, and Spark's settings
    do not limit how many tasks can run, the frame is reduced to as many tasks as can run now. If it
    were not reduced, executors that are added during the job would run more tasks, and the job
    would exceed its rate limit.
    """
    spark = df.sparkSession
    most = most_tasks_at_once(lambda name: spark.conf.get(name, None))
    if most is None and tasks is None:
        if is_sharded(df.schema):
            raise ConfigError(
                "a rate limit is divided by the number of tasks, which is not known after sharded()"
                " on Spark Connect: set shards (and shard_by) instead"
            )
        tasks = slots(spark)
        df = df.coalesce(tasks)
    if tasks is not None:
        copies = 2 if is_true(spark.conf.get("spark.speculation", None)) else 1
        most = min(most or copies * tasks, copies * tasks)
    assert most is not None
    return df, most


OnResult = Callable[[WriteResult, int], object]


def _write_batch(
    job: _Job, writer: PartitionWriter, on_result: OnResult | None, df: DataFrame, batch_id: int
) -> None:
    """Write one micro-batch. Raises as ``write``; Spark then ends the query."""
    result = _write(df, job, writer.named(Scope.QUERY, _query(df), batch_id))
    _log.info("micro-batch %d: %s", batch_id, result)
    if on_result is not None:
        on_result(result, batch_id)


def foreach_batch(
    topic: str | None = None, *, on_result: OnResult | None = None, **options: Unpack[WriteOptions]
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that writes each micro-batch.

    The options are those of ``write``. All output modes are supported, including ``update``.
    ``on_result(result, batch_id)`` is called after each micro-batch, on the driver or, with Spark
    Connect, on the server.

    After a failure, Spark runs tasks or the whole micro-batch again, so records may be duplicated.
    ``delivery="exactly_once"`` with ``shards`` and a checkpoint prevents that. It also needs a
    ``job_id`` on Spark Connect, which does not pass the id of the query. A query that writes more
    than once needs a different ``job_id`` for each write.

    Only this call contacts the schema registry; the micro-batches do not.

    Raises ConfigError for an invalid option, and what the schema registry raises.
    """
    options = concealed_for_tasks(options)
    job, writer = _prepared(topic, options)
    return functools.partial(_write_batch, replace(job, progress=False), writer, on_result)


def _query(df: DataFrame) -> str | None:
    """The id of the query, which is stored in its checkpoint; None if only tasks may know it.

    With Spark Connect, no task knows it either, and it is "".
    """
    if is_connect(df.sparkSession):
        return ""
    query: str | None = df.sparkSession.sparkContext.getLocalProperty(QUERY)
    if query is not None:
        return query
    found = micro_batch(df)  # a thread that the function has started does not know it
    return None if found is None else found.query
