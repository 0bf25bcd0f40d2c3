"""A data pipeline as a description: what to read, how to change it, where to write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from kprod.errors import ConfigError
from kprod.spark.errors import JobFailed
from kprod.spark.partition_writer import task_writer
from kprod.spark.schema_check import check_schema
from kprod.spark.spark_job import session_on
from kprod.spark.write import foreach_batch, write
from kprod.spark.write_result import WriteResult, add_results

VIEW = "input"
STOP_TIMEOUT = "10s"
AVAILABLE_NOW = "available-now"
OF_THE_JOB = frozenset(
    {
        "max_records_per_second",
        "max_bytes_per_second",
        "progress",
        "repartition",
        "results",
        "shard_by",
        "shards",
    }
)
"""Options of ``write`` that a single task does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One of ``path`` (files of ``format``), ``table`` and ``query`` is read, and ``sql`` selects
    from it under the name ``input``.

    With ``stream`` the folder ``path`` is read as a stream of files, with ``checkpoint`` (a folder)
    for what was written; ``trigger`` "available-now" ends when all there is was written, an
    interval such as "5 seconds" goes on. ``options`` are those of ``kprod.spark.write``. Immutable.
    """

    topic: str | None
    bootstrap_servers: str
    path: str | None = None
    format: str = "parquet"
    table: str | None = None
    query: str | None = None
    read_options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of a database, say
    schema: str | None = None
    sql: str | None = None
    stream: bool = False
    checkpoint: str | None = None
    trigger: str = AVAILABLE_NOW
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold passwords
    master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # keys of stores

    def __post_init__(self) -> None:
        sources = [name for name in ("path", "table", "query") if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ConfigError(f"read one of path, table and query; got {sources or 'none of them'}")
        if self.stream and (self.path is None or self.checkpoint is None):
            raise ConfigError("a stream reads the files of a path, and needs a checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A preview of a pipeline's output: the columns as DDL, and the first rows as text."""

    columns: str
    rows: list[str]


@contextmanager
def pipeline_session(pipeline: Pipeline, scratch: Path) -> Iterator[SparkSession]:
    """The session a pipeline runs on, local files below ``scratch``; it ends with the block."""
    with session_on(
        pipeline.master, "kprod pipeline", scratch=scratch, settings=pipeline.spark_conf
    ) as spark:
        yield spark


def end_session(spark: SparkSession) -> None:
    """End the streams and jobs of a session, and itself, whatever they do. Any thread.

    A stream that is told to end waits for its micro-batch, and so for that one's job.
    """
    with suppress(Exception):  # what Spark, or the way to its JVM, complains of: it ends anyway
        spark.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
        spark.interruptAll()
        for query in spark.streams.active:
            query.stop()
    spark.stop()


def dry_run(spark: SparkSession, pipeline: Pipeline, rows: int) -> DryRun:
    """Read, change and judge, and write nothing. Raises ConfigError, SchemaError and JobFailed."""
    with _in_our_words():
        return _dry_run(spark, pipeline, rows)


def _dry_run(spark: SparkSession, pipeline: Pipeline, rows: int) -> DryRun:
    frame = _frame(spark, pipeline)
    per_task = {name: v for name, v in pipeline.options.items() if name not in OF_THE_JOB}
    servers = pipeline.bootstrap_servers
    writer = task_writer(pipeline.topic, bootstrap_servers=servers, **per_task)
    check_schema(frame.schema, writer)
    shown = [] if pipeline.stream else [str(row.asDict()) for row in frame.limit(rows).collect()]
    return DryRun(columns=frame.schema.simpleString(), rows=shown)


def run_pipeline(
    spark: SparkSession, pipeline: Pipeline, told: Callable[[WriteResult, int], object]
) -> WriteResult:
    """Write everything and return what was written; ``told`` hears of each micro-batch.

    Raises as ``kprod.spark.write``, and JobFailed for what Spark raises.
    """
    with _in_our_words():
        return _run(spark, pipeline, told)


def _run(
    spark: SparkSession, pipeline: Pipeline, told: Callable[[WriteResult, int], object]
) -> WriteResult:
    frame = _frame(spark, pipeline)
    options = {"bootstrap_servers": pipeline.bootstrap_servers, **pipeline.options}
    if not pipeline.stream:
        return write(frame, pipeline.topic, **options)
    results: list[WriteResult] = []

    def note(result: WriteResult, batch: int) -> None:
        results.append(result)
        told(result, batch)

    stream = frame.writeStream.option("checkpointLocation", pipeline.checkpoint or "")
    if pipeline.trigger == AVAILABLE_NOW:
        stream = stream.trigger(availableNow=True)
    else:
        stream = stream.trigger(processingTime=pipeline.trigger)
    query = stream.foreachBatch(foreach_batch(pipeline.topic, on_result=note, **options)).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return add_results(results)


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Spark's mistakes of the description as ConfigError, its failures as JobFailed."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigError(_first_lines(error)) from error
    except PySparkException as error:
        raise JobFailed(_first_lines(error)) from error


def _first_lines(error: PySparkException) -> str:
    """Without the stacks of the JVM."""
    said = [line for line in str(error).splitlines() if line.strip()]
    own = [line for line in said if "kprod." in line and not line.lstrip().startswith("File")]
    return " ".join([*said[:1], *own[-1:]])


def _frame(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    if pipeline.table is not None:
        frame = spark.table(pipeline.table)
    elif pipeline.query is not None:
        frame = spark.sql(pipeline.query)
    else:
        reader: Any = spark.readStream if pipeline.stream else spark.read
        reader = reader.format(pipeline.format).options(**pipeline.read_options)
        if pipeline.schema is not None:
            reader = reader.schema(pipeline.schema)
        frame = reader.load(pipeline.path)
    if pipeline.sql is None:
        return frame
    frame.createOrReplaceTempView(VIEW)
    return spark.sql(pipeline.sql)
