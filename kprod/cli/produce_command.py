"""``kprod produce``: lines to records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from kprod.cli.line_records import read_lines
from kprod.cli.line_sender import LineSender
from kprod.cli.producer_options import (
    ConfigFile,
    Options,
    open_producer,
    parse_options,
    parse_pairs,
    with_config,
)
from kprod.cli.stop_signals import Stopped, stop_signals
from kprod.errors import KprodError
from kprod.types import Header

LAST_SECONDS = 10.0  # after Ctrl-C, for what was read already


def produce(
    topic: Annotated[str, typer.Option(help="Where the records go.")],
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            help="Brokers to ask first, as HOST:PORT[,HOST:PORT...]. Otherwise those of --config,"
            " or localhost:9092."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Read lines from here instead of stdin."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(help="What stands between key and value in a line. Without it: no keys."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Send everything to this partition.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="A header of every record, as NAME=VALUE. Repeatable.")
    ] = None,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Send each line of standard input, or of a file, as one record.

    Ends when the input ends; Ctrl-C ends it earlier, after what was read is delivered. A summary
    goes to standard error. The exit code is 0 only when every line was delivered.
    """
    headers: list[Header] = [
        (name, value.encode()) for name, value in parse_pairs(header, "--header")
    ]
    options = with_config(config, parse_options(option, "--option"))
    with stop_signals(), _lines(file) as lines:
        producer = open_producer(bootstrap_servers, options)
        sender = LineSender(
            producer, topic, partition=partition, headers=headers, complain=_complain
        )
        separator = key_separator.encode() if key_separator else None
        raise typer.Exit(_deliver(producer, sender, read_lines(lines, separator)))


def _deliver(producer: Any, sender: LineSender, records: Iterator[Any]) -> int:
    """Send everything, print the account, return the exit code."""
    code = 0
    try:
        sender.send_all(records)
        report = producer.close()
    except Stopped as stopped:
        report, code = producer.close(timeout=LAST_SECONDS), stopped.exit_code
    except KprodError:
        _complain("the rest of the input is not sent")
        report, code = producer.close(timeout=LAST_SECONDS), 1
    lost = sender.refused + report.failed + report.pending
    _complain(f"{report.delivered:,} delivered, {lost:,} failed")
    return code or (1 if lost else 0)


@contextmanager
def _lines(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as lines:
        yield lines


def _complain(text: str) -> None:
    typer.echo(text, err=True)
