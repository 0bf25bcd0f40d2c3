"""Pipelines, which the commands run: what to read, how to transform it, where to write it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from kprod.errors import ConfigError, KprodError
from kprod.spark.acknowledgements import policy_of
from kprod.spark.delivery import terms_of
from kprod.spark.errors import JobFailed
from kprod.spark.options import (
    OF_THE_JOB,
    OF_THE_WRITER,
    check_names,
    concealed_for_tasks,
    divided,
    job_options,
)
from kprod.spark.partition_writer import task_writer
from kprod.spark.schema_check import check_schema
from kprod.spark.write import foreach_batch, write
from kprod.spark.write_result import WriteResult, add_results

VIEW = "input"
STOP_TIMEOUT = "10s"
AVAILABLE_NOW = "available-now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What to read with Spark, how to transform it, and where to write it. Immutable.

    Exactly one of ``path`` (files of ``format``), ``table`` and ``query`` is read. The query
    ``sql``, if given, selects from the table ``input``, which has the rows that were read.

    With ``stream``, the folder ``path`` is read as a stream of files, and the folder ``checkpoint``
    records which files were written. With the ``trigger`` "available-now", the stream ends when all
    existing files are written. With an interval such as "5 seconds", the stream runs until it is
    stopped. ``options`` are those of ``kprod.spark.write``.
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
        object.__setattr__(self, "options", concealed_for_tasks(self.options))
        sources = [name for name in ("path", "table", "query") if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ConfigError(f"read one of path, table and query; got {sources or 'none of them'}")
        if self.stream and (self.path is None or self.checkpoint is None):
            raise ConfigError("a stream reads the files of a path, and needs a checkpoint")
        if self.stream and self.master.startswith("sc://"):
            raise ConfigError(
                "a stream does not run on Spark Connect, which does not report what was written:"
                " use another master, or kprod.spark.foreach_batch in a program of your own"
            )
        self._check_options()

    def _check_options(self) -> None:
        """Raise ConfigError for an invalid option, as far as this can be checked without Spark."""
        _, of_writer = divided(self.options, OF_THE_JOB)
        own, producers = divided(of_writer, OF_THE_WRITER)
        check_names(producers)
        job_options({"bootstrap_servers": self.bootstrap_servers, **producers})
        terms_of(self.topic, own)
        policy_of(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A preview of a pipeline's output: the columns as DDL, and the first rows as text."""

    columns: str
    rows: list[str]


# One quick compiler and one collector thread: on a small, busy machine a job of seconds is done
# several times sooner than with what suits a server.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def session_on(
    master: str, app: str, *, scratch: Path, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Yield a Spark session on ``master``, which may be ``sc://...`` (Spark Connect).

    By default, the session has no web UI, logs no lines below ERROR and, on a local master, has its
    temporary files in ``scratch``. ``settings`` take precedence over these defaults. Python workers
    run this interpreter, unless ``PYSPARK_PYTHON`` in the environment names another one. With Spark
    Connect, there are no defaults, and the server decides which interpreter runs.
    """
    builder = SparkSession.Builder().appName(app)
    own: dict[str, str] = {}
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        builder = builder.master(master)
        own = QUIET
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local"):
            own = {**QUIET, **_local(scratch)}
    for name, value in {**own, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


QUIET = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _local(scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }


@contextmanager
def pipeline_session(pipeline: Pipeline, scratch: Path) -> Iterator[SparkSession]:
    """Yield the session for a pipeline. Its local files are in ``scratch``. The block ends it."""
    with session_on(
        pipeline.master, "kprod pipeline", scratch=scratch, settings=pipeline.spark_conf
    ) as spark:
        yield spark


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel all jobs and streams of a session. Any thread may call it.

    It first cancels the jobs, because ``query.stop`` waits for the micro-batch and its job. The
    session stays open: kprod still has to start a job that ends the transactions of the tasks.
    """
    with suppress(Exception):  # what Spark, or the way to its JVM, complains of: it ends anyway
        spark.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
        spark.interruptAll()
        for query in spark.streams.active:
            query.stop()


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Convert Spark's exceptions to ConfigError (the pipeline is invalid) or JobFailed."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigError(_first_lines(error)) from error
    except PySparkException as error:
        raise JobFailed(_first_lines(error)) from error


def _first_lines(error: PySparkException) -> str:
    """The message of an error, without the stack traces of the JVM."""
    said = [line for line in str(error).splitlines() if line.strip()]
    own = [line for line in said if "kprod." in line and not line.lstrip().startswith("File")]
    return " ".join([*said[:1], *own[-1:]])


@_in_our_words()
def dry_run(spark: SparkSession, pipeline: Pipeline, rows: int) -> DryRun:
    """Read, transform and check, without writing. Raises ConfigError, SchemaError and JobFailed."""
    frame = _frame(spark, pipeline)
    _, per_task = divided(pipeline.options, OF_THE_JOB)
    servers = pipeline.bootstrap_servers
    writer = task_writer(pipeline.topic, bootstrap_servers=servers, **per_task)
    check_schema(frame.schema, writer)
    shown = [] if pipeline.stream else [str(row.asDict()) for row in frame.limit(rows).collect()]
    return DryRun(columns=frame.schema.simpleString(), rows=shown)


@_in_our_words()
def run_pipeline(
    spark: SparkSession, pipeline: Pipeline, on_result: Callable[[WriteResult, int], object]
) -> WriteResult:
    """Write everything; return what was written. ``on_result`` is called for each micro-batch.

    Raises the errors of ``kprod.spark.write``, and JobFailed for Spark's exceptions.
    """
    frame = _frame(spark, pipeline)
    options = {"bootstrap_servers": pipeline.bootstrap_servers, **pipeline.options}
    if not pipeline.stream:
        return write(frame, pipeline.topic, **options)
    total = add_results([])
    failures: list[KprodError] = []

    def note(result: WriteResult, batch: int) -> None:
        nonlocal total
        total = add_results([total, result])
        on_result(result, batch)

    write_batch = foreach_batch(pipeline.topic, on_result=note, **options)

    def write_or_note(frame: DataFrame, batch: int) -> None:
        try:
            write_batch(frame, batch)
        except KprodError as error:
            failures.append(error)  # Spark passes on only its text
            raise

    stream = frame.writeStream.option("checkpointLocation", pipeline.checkpoint or "")
    if pipeline.trigger == AVAILABLE_NOW:
        stream = stream.trigger(availableNow=True)
    else:
        stream = stream.trigger(processingTime=pipeline.trigger)
    query = stream.foreachBatch(write_or_note).start()
    try:
        query.awaitTermination()
    except PySparkException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        query.stop()
    return total


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
