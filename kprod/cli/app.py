"""The commands, put together."""

from __future__ import annotations

import typer

from kprod.cli.broker_command import broker
from kprod.cli.demo.command import demo
from kprod.cli.perf.command import perf
from kprod.cli.produce_command import produce

app = typer.Typer(
    name="kprod",
    help="A fast, safe Kafka producer, and an embedded broker to try it on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold passwords
)
app.command()(demo)
app.command()(broker)
app.command()(produce)
app.command()(perf)
