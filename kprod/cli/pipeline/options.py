"""The options of ``kprod pipeline``: what each takes, and what ``--help`` says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
ValueFormat = Annotated[str | None, typer.Option(help="binary, json or avro. [default: binary]")]
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
