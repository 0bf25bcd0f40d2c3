"""``kprod pipeline``: reads files, tables or SQL with Spark, and writes the rows to Kafka."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kprod.cli.client_options import (
    outweighed,
    parse_pairs,
    take_servers,
    with_config,
)
from kprod.cli.exits import Stopped, stop_signals
from kprod.cli.spark_runtime import in_spark_thread, why_no_spark
from kprod.cli.terminal import echo
from kprod.config import OPTIONS
from kprod.config.reading import from_text, option_name
from kprod.errors import ConfigError, KprodError, numbered

if TYPE_CHECKING:
    from kprod.cli.spark_pipeline import Pipeline
    from kprod.spark.write_result import WriteResult


Job = Annotated[
    Path | None,
    typer.Argument(
        exists=True,
        dir_okay=False,
        help="A TOML file that describes the pipeline; options override it.",
    ),
]
Read = Annotated[str | None, typer.Option("--read", help="Files to read: path or glob pattern.")]
Format = Annotated[
    str | None,
    typer.Option(help="File format: parquet, csv, json, orc, text. [default: parquet]"),
]
Table = Annotated[str | None, typer.Option(help="A table of Spark's catalog to read.")]
Query = Annotated[str | None, typer.Option(help="A Spark SQL query to read from.")]
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
Topic = Annotated[str | None, typer.Option(help="The topic. Default: column 'topic'.")]
Servers = Annotated[
    str | None,
    typer.Option(help="Addresses of the brokers, as seen from the executors: HOST:PORT[,...]."),
]
Column = Annotated[
    list[str] | None,
    typer.Option(help="A column's role, as ROLE=COLUMN: key=tailnum. Repeatable."),
]
ValueFormat = Annotated[
    str | None,
    typer.Option(
        help="binary, json, avro, protobuf or json_schema; the last three need"
        " -X schema_registry=URL and, if the subject is not TOPIC-value, -X subject=NAME."
        " [default: binary]"
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--option",
        help="A writer or producer option, as NAME=VALUE: on_row_error=skip,"
        " repartition=kafka, max_records_per_second=5000, compression_type=zstd. ${env:NAME} is"
        " read on the executors. Repeatable.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        help="A file of producer options in Java's properties format; placeholders are replaced on"
        " the executors. Options on the command line take precedence.",
    ),
]
Stream = Annotated[bool, typer.Option("--stream", help="Read the folder as a stream of files.")]
Checkpoint = Annotated[str | None, typer.Option(help="Checkpoint folder of the stream.")]
Trigger = Annotated[
    str | None,
    typer.Option(help="Trigger of the stream: available-now, or an interval such as '5 seconds'."),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master: local[4], spark://host:7077, yarn, sc://host. [default: local[*]]"
    ),
]
SparkConf = Annotated[
    list[str] | None, typer.Option(help="A Spark setting, as NAME=VALUE. Repeatable.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the columns and the first rows; write nothing, but register the schema.",
    ),
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", dir_okay=False, help="Write the result to this file.")
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
"""The fields of a Pipeline by table and key of the file."""

DIRECT = ("topic", "bootstrap_servers")  # of [write]; its other keys are the writer's options


def read_job(path: Path) -> dict[str, Any]:
    """The fields of the Pipeline that a file describes.

    The tables of the file are ``[read]``, ``[transform]``, ``[write]`` (options of
    ``kprod.spark.write``), ``[kafka]`` (options of the producer) and ``[spark]``. Raises
    typer.BadParameter, which says what is wrong with the file, such as an unknown table or key.
    """
    try:
        with path.open("rb") as file:
            described = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    unknown = sorted(set(described) - set(TABLES) - {"write", "kafka"})
    if unknown:
        meant = _did_you_mean(unknown[0], [*TABLES, "write", "kafka"])
        raise typer.BadParameter(f"{path}: a pipeline has no table {unknown}{meant}")
    fields: dict[str, Any] = {}
    for table, keys in TABLES.items():
        for key, value in described.get(table, {}).items():
            if key not in keys:
                meant = _did_you_mean(key, keys) or f"; it has {sorted(keys)}"
                raise typer.BadParameter(f"{path}: [{table}] has no {key!r}{meant}")
            fields[keys[key]] = value
    written = dict(described.get("write", {}))
    fields |= {name: written.pop(name) for name in DIRECT if name in written}
    options = fields["options"] = {**written, **described.get("kafka", {})}
    servers = take_servers(options, fields.get("bootstrap_servers"))
    return fields if servers is None else {**fields, "bootstrap_servers": servers}


NUMBERS: Mapping[str, Callable[[str], float]] = {
    "max_bytes_per_second": float,
    "max_records_per_second": float,
    "max_row_errors": int,
    "schema_id": int,
    "shards": int,
    "timeout": float,
}
"""The options of ``kprod.spark.write`` that take a number, in addition to the producer's."""


def writer_options(texts: Sequence[str] | None) -> dict[str, Any]:
    """The options of the writer and of the producer, each with the type that it takes."""
    return {name: _value(name, text) for name, text in parse_pairs(texts, "--option")}


def _value(name: str, text: str) -> Any:
    number = NUMBERS.get(option_name(name))
    if number is not None:
        try:
            return number(text)
        except ValueError:  # the writer says what it expects
            return text
    return from_text(name, text) if option_name(name) in {*OPTIONS, "progress"} else text


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    import difflib  # needed only for misspelled names

    close = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


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

    The exit code is 0 if every row is in the topic; 1 if the job failed; 2 if the pipeline is
    invalid (nothing is written); 3 if rows were skipped or became dead letters. A summary goes to
    standard error.
    """
    if report is not None and not report.parent.is_dir():  # refused before anything is written
        raise typer.BadParameter(f"--report: there is no folder {report.parent}")
    writing = with_config(config, writer_options(option), filled=False)
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
    from kprod.cli.spark_pipeline import Pipeline

    fields = {**described, **{name: value for name, value in given.items() if value is not None}}
    fields["options"] = outweighed(described.get("options", {}), writing)
    fields.setdefault("topic", None)
    if "bootstrap_servers" not in fields:
        raise typer.BadParameter("--bootstrap-servers is missing: the cluster to write to")
    try:
        return Pipeline(**fields)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error


def _run(pipeline: Pipeline, dry: bool, report: Path | None) -> int:
    """Run the pipeline and print what was written; return the exit code."""
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
    """A pipeline, and its Spark session once it has started."""

    def __init__(
        self, pipeline: Pipeline, scratch: Path, *, dry: bool, report: Path | None
    ) -> None:
        self._pipeline = pipeline
        self._scratch = scratch
        self._dry = dry
        self._report = report
        self._spark: Any = None

    def to_its_end(self) -> int:
        """Run the pipeline and return the exit code."""
        from kprod.cli.spark_pipeline import pipeline_session

        with pipeline_session(self._pipeline, self._scratch) as spark:
            self._spark = spark
            if self._dry:
                return _show(spark, self._pipeline)
            return _write(spark, self._pipeline, self._report)

    def stop(self) -> None:
        """Stop all streams and jobs, so that ``to_its_end`` ends. Any thread may call this."""
        from kprod.cli.spark_pipeline import cancel_jobs

        if self._spark is not None:
            cancel_jobs(self._spark)


def _show(spark: Any, pipeline: Pipeline) -> int:
    from kprod.cli.spark_pipeline import dry_run

    found = dry_run(spark, pipeline, SHOWN)
    echo(found.columns)
    for row in found.rows:
        echo(row)
    _say("a dry run: nothing was written")
    return 0


def _write(spark: Any, pipeline: Pipeline, report: Path | None) -> int:
    from kprod.cli.spark_pipeline import run_pipeline
    from kprod.quantities import counted

    def report_batch(result: WriteResult, batch: int) -> None:
        _say(f"micro-batch {batch}: {result}")

    result = run_pipeline(spark, pipeline, report_batch)
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
    echo(f"kprod pipeline: {text}", err=True)
