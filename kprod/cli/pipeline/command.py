"""``kprod pipeline``: the command."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kprod.cli.demo.java import why_no_java
from kprod.cli.pipeline.job_file import read_job
from kprod.cli.pipeline.options import (
    Checkpoint,
    Column,
    ConfigFile,
    DryRun,
    Format,
    Job,
    Master,
    Option,
    Query,
    Read,
    ReadOption,
    ReportFile,
    Schema,
    Servers,
    SparkConf,
    Sql,
    Stream,
    Table,
    Topic,
    Trigger,
    ValueFormat,
)
from kprod.cli.pipeline.spark_thread import SparkThread
from kprod.cli.producer_options import parse_options, parse_pairs, take_servers, with_config
from kprod.cli.stop_signals import Stopped, stop_signals
from kprod.errors import ConfigError, KprodError

if TYPE_CHECKING:
    from kprod.spark.pipeline import Pipeline
    from kprod.spark.write_result import WriteResult

FAILED, MISUSED, INCOMPLETE = 1, 2, 3
SHOWN = 5


def pipeline(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    job: Job = None,
    read: Read = None,
    format: Format = None,
    table: Table = None,
    query: Query = None,
    read_option: ReadOption = None,
    schema: Schema = None,
    sql: Sql = None,
    topic: Topic = None,
    bootstrap_servers: Servers = None,
    column: Column = None,
    value_format: ValueFormat = None,
    option: Option = None,
    config: ConfigFile = None,
    stream: Stream = False,
    checkpoint: Checkpoint = None,
    trigger: Trigger = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    dry_run: DryRun = False,
    report: ReportFile = None,
) -> None:
    """Read files, a table or SQL with Spark, and write every row to Kafka.

    Ends with 0 when every row is in the topic; 1 when the job has failed; 2 when the pipeline makes
    no sense, before anything is written; 3 when rows were skipped or became dead letters. A summary
    goes to standard error.
    """
    writing = with_config(config, parse_options(option, "--option"), filled=False)
    named = take_servers(writing)
    given = {
        "path": read,
        "format": format,
        "table": table,
        "query": query,
        "schema": schema,
        "sql": sql,
        "topic": topic,
        "bootstrap_servers": bootstrap_servers or named,
        "stream": stream or None,
        "checkpoint": checkpoint,
        "trigger": trigger,
        "master": master,
        "read_options": dict(parse_pairs(read_option, "--read-option")) or None,
        "spark_conf": dict(parse_pairs(spark_conf, "--spark-conf")) or None,
    }
    if column:
        writing["columns"] = dict(parse_pairs(column, "--column"))
    if value_format is not None:
        writing["value_format"] = value_format
    _require_spark()
    described = {} if job is None else read_job(job)
    raise typer.Exit(_run(_pipeline(described, given, writing), dry_run, report))


def _pipeline(
    described: Mapping[str, Any], given: Mapping[str, Any], writing: Mapping[str, Any]
) -> Pipeline:
    from kprod.spark.pipeline import Pipeline

    fields = {**described, **{name: value for name, value in given.items() if value is not None}}
    fields["options"] = {**described.get("options", {}), **writing}
    fields.setdefault("topic", None)
    if "bootstrap_servers" not in fields:
        raise typer.BadParameter("where to? --bootstrap-servers is missing")
    try:
        return Pipeline(**fields)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def _run(pipeline: Pipeline, dry: bool, report: Path | None) -> int:
    """Run it and tell what was written; the exit code."""
    with tempfile.TemporaryDirectory(prefix="kprod-", ignore_cleanup_errors=True) as scratch:
        running = _Running(pipeline, Path(scratch), dry=dry, report=report)
        try:
            with stop_signals():
                return SparkThread(running.to_its_end).result(running.stop)
        except Stopped as stopped:
            _say(f"stopped by {stopped}: what was written stays in the topic")
            return stopped.exit_code
        except ValueError as error:  # ConfigError, SchemaError: nothing was written
            _say(str(error))
            return MISUSED
        except KprodError as error:
            _say(str(error))
            return FAILED


class _Running:
    """A pipeline, and the session it runs on once there is one."""

    def __init__(
        self, pipeline: Pipeline, scratch: Path, *, dry: bool, report: Path | None
    ) -> None:
        self._pipeline = pipeline
        self._scratch = scratch
        self._dry = dry
        self._report = report
        self._spark: Any = None

    def to_its_end(self) -> int:
        """The exit code."""
        from kprod.spark.pipeline import pipeline_session

        with pipeline_session(self._pipeline, self._scratch) as spark:
            self._spark = spark
            if self._dry:
                return _show(spark, self._pipeline)
            return _write(spark, self._pipeline, self._report)

    def stop(self) -> None:
        """End all streams and jobs, and the session. Any thread."""
        from kprod.spark.pipeline import end_session

        if self._spark is not None:
            end_session(self._spark)


def _show(spark: Any, pipeline: Pipeline) -> int:
    from kprod.spark.pipeline import dry_run

    found = dry_run(spark, pipeline, SHOWN)
    typer.echo(found.columns)
    for row in found.rows:
        typer.echo(row)
    _say("a dry run: nothing was written")
    return 0


def _write(spark: Any, pipeline: Pipeline, report: Path | None) -> int:
    from kprod.spark.pipeline import run_pipeline

    def told(result: WriteResult, batch: int) -> None:
        _say(f"micro-batch {batch}: {result}")

    result = run_pipeline(spark, pipeline, told)
    for topic, partitions in result.offsets.items():
        records = sum(found.records for found in partitions.values())
        _say(f"{topic}: {records:,} records in {len(partitions)} partitions")
    for reason, shards in list(result.reasons.items())[:SHOWN]:
        _say(f"not written, in {shards} tasks: {reason}")
    _say(str(result))
    if report is not None:
        report.write_text(json.dumps(result.as_dict(), indent=2) + "\n")
    return INCOMPLETE if result.skipped or result.dead_letters else 0


def _say(text: str) -> None:
    typer.echo(f"kprod pipeline: {text}", err=True)


def _require_spark() -> None:
    problem = why_no_java()
    if find_spec("pyspark") is None:
        problem = "pyspark is not installed: pip install 'kprod[spark]'"
    if problem is not None:
        typer.echo(f"kprod pipeline: {problem}", err=True)
        raise typer.Exit(MISUSED)
