"""``kprod pipeline``: files, tables and SQL through Spark into Kafka, from the command line."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kprod.cli.client_options import (
    outweighed,
    parse_options,
    parse_pairs,
    take_servers,
    with_config,
)
from kprod.cli.exits import Stopped, stop_signals
from kprod.cli.spark_runtime import in_spark_thread, why_no_spark
from kprod.errors import ConfigError, KprodError, numbered

if TYPE_CHECKING:
    from kprod.spark.pipeline import Pipeline
    from kprod.spark.write_result import WriteResult


Job = Annotated[
    Path | None,
    typer.Argument(
        exists=True, dir_okay=False, help="A TOML file that describes the pipeline; options win."
    ),
]
Read = Annotated[str | None, typer.Option("--read", help="Files to read: a path or a pattern.")]
Format = Annotated[
    str | None, typer.Option(help="Of the files: parquet, csv, json, orc, text. [default: parquet]")
]
Table = Annotated[str | None, typer.Option(help="A table of Spark's catalog to read.")]
Query = Annotated[str | None, typer.Option(help="Spark SQL to read by.")]
ReadOption = Annotated[
    list[str] | None,
    typer.Option(help="An option of Spark's reader, as NAME=VALUE: header=true. Repeatable."),
]
Schema = Annotated[
    str | None, typer.Option(help="Columns of the files, as DDL: 'id long, n string'.")
]
Sql = Annotated[
    str | None, typer.Option(help="Spark SQL that makes the records from the view 'input'.")
]
Topic = Annotated[str | None, typer.Option(help="Where the records go, if not to column 'topic'.")]
Servers = Annotated[
    str | None, typer.Option(help="Brokers as the executors reach them, HOST:PORT[,...].")
]
Column = Annotated[
    list[str] | None,
    typer.Option(help="A column's role, as ROLE=COLUMN: key=tailnum. Repeatable."),
]
ValueFormat = Annotated[
    str | None,
    typer.Option(
        help="binary, json, avro, protobuf or json_schema; the last three with -X subject=NAME and"
        " -X schema_registry=URL. [default: binary]"
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--option",
        help="An option of the writer or the producer, as NAME=VALUE: on_row_error=skip,"
        " repartition=kafka, max_records_per_second=5000, compression_type=zstd. ${env:NAME} is"
        " looked up on the executors. Repeatable.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        help="Options of the producer in Java's properties format; what stands for secrets is"
        " looked up on the executors. What is given by itself counts more.",
    ),
]
Stream = Annotated[bool, typer.Option("--stream", help="Read the folder as a stream of files.")]
Checkpoint = Annotated[
    str | None, typer.Option(help="Folder that remembers what a stream has written.")
]
Trigger = Annotated[
    str | None,
    typer.Option(help="Of a stream: available-now, or an interval such as '5 seconds'."),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Any Spark: local[4], spark://host:7077, yarn, sc://host. [default: local[*]]"
    ),
]
SparkConf = Annotated[
    list[str] | None, typer.Option(help="A setting of Spark, as NAME=VALUE. Repeatable.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the columns and the first rows; write nothing.")
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", dir_okay=False, help="Write the result there, as JSON.")
]


TABLES: Mapping[str, Mapping[str, str]] = {
    "read": {
        "path": "path",
        "format": "format",
        "table": "table",
        "query": "query",
        "options": "read_options",
        "schema": "schema",
        "stream": "stream",
        "checkpoint": "checkpoint",
        "trigger": "trigger",
    },
    "transform": {"sql": "sql"},
    "spark": {"master": "master", "conf": "spark_conf"},
}
"""The fields of a Pipeline by the tables and keys of the file."""

DIRECT = ("topic", "bootstrap_servers")  # of [write]; what else is there goes to the writer


def read_job(path: Path) -> dict[str, Any]:
    """The fields of the Pipeline that the file describes.

    Tables are ``[read]``, ``[transform]``, ``[write]`` (options of ``kprod.spark.write``),
    ``[kafka]`` (options of the producer) and ``[spark]``. Raises typer.BadParameter for a file that
    is not of that kind, naming what it does not know.
    """
    try:
        with path.open("rb") as file:
            told = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    unknown = sorted(set(told) - set(TABLES) - {"write", "kafka"})
    if unknown:
        raise typer.BadParameter(f"{path}: a pipeline has no table {unknown}")
    fields: dict[str, Any] = {}
    for table, keys in TABLES.items():
        for key, value in told.get(table, {}).items():
            if key not in keys:
                raise typer.BadParameter(f"{path}: [{table}] has no {key!r}; it has {sorted(keys)}")
            fields[keys[key]] = value
    written = dict(told.get("write", {}))
    fields |= {name: written.pop(name) for name in DIRECT if name in written}
    options = fields["options"] = {**written, **told.get("kafka", {})}
    servers = take_servers(options, fields.get("bootstrap_servers"))
    return fields if servers is None else {**fields, "bootstrap_servers": servers}


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
    given = {
        "path": read,
        "format": format,
        "table": table,
        "query": query,
        "schema": schema,
        "sql": sql,
        "topic": topic,
        "bootstrap_servers": take_servers(writing, bootstrap_servers),
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
    if (problem := why_no_spark()) is not None:
        _say(problem)
        raise typer.Exit(MISUSED)
    described = {} if job is None else read_job(job)
    raise typer.Exit(_run(_pipeline(described, given, writing), dry_run, report))


def _pipeline(
    described: Mapping[str, Any], given: Mapping[str, Any], writing: Mapping[str, Any]
) -> Pipeline:
    from kprod.spark.pipeline import Pipeline

    fields = {**described, **{name: value for name, value in given.items() if value is not None}}
    fields["options"] = outweighed(described.get("options", {}), writing)
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
                return in_spark_thread(running.to_its_end, running.stop)
        except Stopped as stopped:
            _say(f"stopped by {stopped}: what was written stays in the topic")
            return stopped.exit_code
        except ValueError as error:  # ConfigError, SchemaError: nothing was written
            _say(numbered(error))
            return MISUSED
        except KprodError as error:
            _say(numbered(error))
            return FAILED


class _Running:
    """A pipeline, and the session it runs on once it has begun."""

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
    from kprod.quantities import counted
    from kprod.spark.pipeline import run_pipeline

    def tell(result: WriteResult, batch: int) -> None:
        _say(f"micro-batch {batch}: {result}")

    result = run_pipeline(spark, pipeline, tell)
    for topic, partitions in result.offsets.items():
        records = counted(sum(found.records for found in partitions.values()), "record")
        _say(f"{topic}: {records} in {counted(len(partitions), 'partition')}")
    for reason, shards in list(result.reasons.items())[:SHOWN]:
        _say(f"not written, in {counted(shards, 'task')}: {reason}")
    _say(str(result))
    if report is not None:
        report.write_text(json.dumps(result.as_dict(), indent=2) + "\n")
    return INCOMPLETE if result.skipped or result.dead_letters else 0


def _say(text: str) -> None:
    typer.echo(f"kprod pipeline: {text}", err=True)
