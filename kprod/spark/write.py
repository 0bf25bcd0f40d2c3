"""Writes a DataFrame or a micro-batch to Kafka, as one Spark job, and tells what was written."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame

from kprod.errors import ConfigError, KprodError
from kprod.spark.atomic_batch import abort_batch, commit_batch, end_in_task
from kprod.spark.errors import WriteFailed
from kprod.spark.exactly_once.shard import Scope, Terms
from kprod.spark.kafka_partitioning import by_kafka_partition, check_gathers, partition_count
from kprod.spark.partition_writer import PartitionWriter, task_writer
from kprod.spark.producer_options import with_large_batches
from kprod.spark.rate_limit import RateLimit
from kprod.spark.schema_check import check_schema
from kprod.spark.sharded import check_placed, is_sharded, sharded
from kprod.spark.spark_job import collect, is_connect, slots
from kprod.spark.task_identity import QUERY
from kprod.spark.task_outcome import OUTCOME_SCHEMA, JobTask, TaskOutcome, read_outcome
from kprod.spark.write_result import WriteResult, write_result


def write(
    df: DataFrame,
    topic: str | None = None,
    *,
    bootstrap_servers: str | Sequence[str],
    max_records_per_second: float | None = None,
    max_bytes_per_second: float | None = None,
    repartition: Literal["kafka"] | None = None,
    results: Literal["shards", "summary"] = "shards",
    progress: bool = True,
    shards: int | None = None,
    shard_by: str | Sequence[str] | None = None,
    **options: Any,
) -> WriteResult:
    """Write every row of ``df`` to Kafka and return when all are acknowledged.

    At least once; with ``delivery="exactly_once"`` once, whatever Spark does with its tasks; with
    ``delivery="atomic"`` once and as a whole: readers of committed records see all of it or
    nothing. With a ``job_id`` once, too, when the job is started again under the same name and with
    the same rows: for that they are shuffled into as many ``shards``, by the columns ``shard_by``
    or by all of them, as ``kprod.spark.sharded`` does.

    Runs one Spark job, column by column (``mapInArrow``), on a classic session as well as on one of
    Spark Connect. Further options are those of ``partition_writer``. Beyond them:

    ``max_records_per_second`` and ``max_bytes_per_second`` (of keys and values) limit the whole
    job: each task gets its share of what the tasks that run at once may write.
    ``repartition="kafka"`` shuffles the rows by the Kafka partition they go to, which the producer
    would choose, too: each is written by one task, in batches of 1 MiB unless sizes are given.
    ``results="summary"`` leaves the single shards out of the result. ``progress`` draws a bar if
    standard error is a terminal.

    Raises ConfigError and SchemaError before a task starts; WriteFailed, without further attempts,
    for what no attempt can help (an unknown topic, credentials, permissions, a row that is no
    record, a shard that came back with other rows, an atomic batch that was not committed); what
    Spark raises when a task has failed as
    often as it may.
    """
    return write_named(
        partial(replace, scope=Scope.CALL),
        df,
        topic,
        bootstrap_servers=bootstrap_servers,
        max_records_per_second=max_records_per_second,
        max_bytes_per_second=max_bytes_per_second,
        repartition=repartition,
        results=results,
        progress=progress,
        shards=shards,
        shard_by=shard_by,
        **options,
    )


def write_named(  # noqa: PLR0913
    naming: Callable[[Terms], Terms],
    df: DataFrame,
    topic: str | None,
    *,
    bootstrap_servers: str | Sequence[str],
    max_records_per_second: float | None = None,
    max_bytes_per_second: float | None = None,
    repartition: Literal["kafka"] | None = None,
    results: Literal["shards", "summary"] = "shards",
    progress: bool = True,
    shards: int | None = None,
    shard_by: str | Sequence[str] | None = None,
    **options: Any,
) -> WriteResult:
    """As ``write``; ``naming`` says by which name exactly once is promised."""
    if repartition not in (None, "kafka"):
        raise ConfigError(f'repartition: expected "kafka" or None; got {repartition!r}')
    if results not in ("shards", "summary"):
        raise ConfigError(f'results: expected "shards" or "summary"; got {results!r}')
    limit = RateLimit(records=max_records_per_second, bytes=max_bytes_per_second)
    if repartition == "kafka":
        options = with_large_batches(options)
    writer = task_writer(topic, bootstrap_servers=bootstrap_servers, **options)
    if writer.terms is not None:
        writer = replace(writer, terms=naming(writer.terms))
    df = _placed(df, writer, shards, shard_by, repartition)
    check_schema(df.schema, writer)
    started = time.monotonic()
    tasks = None
    if repartition == "kafka":
        check_gathers(writer)
        tasks = _ask_partitions(df, writer)
        df = by_kafka_partition(df, writer, tasks)
    if not limit.is_unlimited:
        at_once = slots(df.sparkSession)
        shared = limit.shared_by(at_once if tasks is None else min(at_once, tasks))
        writer = replace(writer, limit=shared)
    outcomes = _run(df, writer, progress)
    if writer.terms is not None and writer.terms.is_atomic:
        outcomes = commit_batch(writer, outcomes, end_in_task(df.sparkSession))
    reports = [found.report for found in outcomes if found.report is not None]
    result = write_result(reports, time.monotonic() - started)
    raise_failure(outcomes, result)
    return result if results == "shards" else replace(result, shards=())


def _placed(
    df: DataFrame,
    writer: PartitionWriter,
    shards: int | None,
    shard_by: str | Sequence[str] | None,
    repartition: str | None,
) -> DataFrame:
    if shards is None:
        if shard_by is not None:
            raise ConfigError("shard_by says by what, and shards= how many; the second is missing")
    elif writer.terms is None:
        raise ConfigError('shards is for delivery="exactly_once" and "atomic"')
    elif repartition is not None:
        raise ConfigError("shards and repartition both say which rows a task has: give one")
    elif not is_sharded(df.schema):
        df = sharded(df, shards, shard_by)
    check_placed(writer.terms, df.schema)
    return df


def raise_failure(outcomes: Sequence[TaskOutcome], result: WriteResult | None) -> None:
    """Raises WriteFailed for the first task that no attempt could help, if there is one."""
    for found in outcomes:
        if found.failure is not None:
            raise _failed(found.failure, found.task, result) from found.failure


def _run(df: DataFrame, writer: PartitionWriter, progress: bool) -> list[TaskOutcome]:
    task = JobTask(writer=writer, job=uuid.uuid4().hex)
    title = f"kprod: {writer.plan.shapes.topic or 'topics of the rows'}"
    try:
        rows = collect(df.mapInArrow(task, OUTCOME_SCHEMA), title, progress)
    except Exception:  # of Spark's: what tasks have prepared is given up
        abort_batch(writer, (), end_in_task(df.sparkSession))
        raise
    return [read_outcome(bytes(row["outcome"])) for row in rows]


def _ask_partitions(df: DataFrame, writer: PartitionWriter) -> int:
    try:
        return partition_count(df, writer)
    except KprodError as error:
        raise _failed(error, 0, None) from error


def _failed(error: KprodError, task: int, result: WriteResult | None) -> WriteFailed:
    written = "" if result is None else f"; the other tasks have written {result.records:,} records"
    return WriteFailed(
        f"task {task} failed for good: {type(error).__name__}: {error}{written}",
        task=task,
        result=result,
    )


_log = logging.getLogger(__name__)

OnResult = Callable[[WriteResult, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeachBatch:
    """For ``writeStream.foreachBatch``. Immutable."""

    topic: str | None
    on_result: OnResult | None
    options: dict[str, Any] = field(repr=False)  # may hold passwords

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch. Raises as ``write``, and Spark ends the query then."""
        naming = partial(replace, scope=Scope.QUERY, query=_query(df), batch=batch_id)
        result = write_named(naming, df, self.topic, **{**self.options, "progress": False})
        _log.info("micro-batch %d: %s", batch_id, result)
        if self.on_result is not None:
            self.on_result(result, batch_id)


def foreach_batch(
    topic: str | None = None, *, on_result: OnResult | None = None, **options: Any
) -> ForeachBatch:
    """Make a function for ``writeStream.foreachBatch``: ``write`` with these options.

    Every output mode of Spark's is possible with it, ``update`` among them. ``on_result(result,
    batch_id)`` is called after each micro-batch, where the function runs: on the driver, or with
    Spark Connect on the server. After a failure Spark runs a micro-batch again, with the same rows
    and number: at least once; once with ``delivery="exactly_once"``, ``shards`` and a checkpoint.
    Spark Connect does not tell which query it is, so that needs a ``job_id`` there, and wherever
    one query writes to the same topic in more than one place. Raises ConfigError for a bad option
    when the first one is written.
    """
    return ForeachBatch(topic=topic, on_result=on_result, options=options)


def _query(df: DataFrame) -> str | None:
    """The id of the query, which its checkpoint has; where Spark tells."""
    if is_connect(df.sparkSession):
        return None
    found: str | None = df.sparkSession.sparkContext.getLocalProperty(QUERY)
    return found
