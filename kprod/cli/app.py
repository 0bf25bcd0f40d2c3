"""All commands of ``kprod``."""

from __future__ import annotations

from typing import Annotated

import typer

from kprod.cli.broker_command import broker
from kprod.cli.consume_command import consume
from kprod.cli.demo.command import demo
from kprod.cli.errors_command import errors
from kprod.cli.log_command import log
from kprod.cli.perf.command import perf
from kprod.cli.pipeline_command import pipeline
from kprod.cli.produce_command import produce
from kprod.cli.topics_command import topics
from kprod.cli.transactions_command import transactions
from kprod.cli.verifiable_producer_command import verifiable_producer
from kprod.version import VERSION

app = typer.Typer(
    name="kprod",
    help="A fast, safe Kafka producer, and an embedded broker to try it on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold passwords
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kprod {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Options of ``kprod`` without a command."""


app.command()(demo)
app.command()(broker)
app.command()(produce)
app.command()(consume)
app.command()(perf)
app.command()(verifiable_producer)
app.command()(pipeline)
app.command()(errors)
app.add_typer(log, name="log")
app.add_typer(topics, name="topics")
app.add_typer(transactions, name="transactions")
