"""The command ``kprod demo`` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kprod.cli.client_options import (
    ConfigFile,
    EmbeddedServers,
    Options,
    parse_options,
    take_servers,
    with_config,
)
from kprod.cli.demo.flights import COUNT
from kprod.cli.exits import CommandFailure, reported_failures
from kprod.cli.spark_runtime import why_no_spark


def demo(
    bootstrap_servers: EmbeddedServers = None,
    records: Annotated[
        int, typer.Option(min=1, max=COUNT, help="How many of the flights to write.")
    ] = COUNT,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Write with Spark, or from this process.")
    ] = True,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the embedded broker running at the end.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Directory of the embedded broker's log; it is kept."),
    ] = None,
    topic: Annotated[str, typer.Option(help="The topic to write to.")] = "flights",
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of the topic, if it has to be created.")
    ] = 6,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Write 336,776 real flights through Spark into Kafka, read them back, and compare.

    The reader shares no code with the producer. The exit code is 0 only if every flight came back
    exactly once and unchanged, and the flights of each aircraft came back in order.
    """
    options = with_config(config, parse_options(option, "-X"))
    bootstrap_servers = take_servers(options, bootstrap_servers)
    if bootstrap_servers is not None and (keep or data_dir is not None):
        raise typer.BadParameter("--keep and --data-dir are about the embedded broker")
    from kprod.cli.demo.report import Screen
    from kprod.cli.demo.story import Plan, Story  # slow: loads the producer and the reader

    plan = Plan(
        bootstrap_servers=bootstrap_servers,
        records=records,
        spark=spark,
        keep=keep,
        data_dir=data_dir,
        topic=topic,
        partitions=partitions,
        options=options,
    )
    with reported_failures("kprod demo"):
        if spark and (problem := why_no_spark()) is not None:
            raise CommandFailure(f"{problem}. To see the demo without Spark: kprod demo --no-spark")
        code = Story(plan, Screen(Console())).run()
    raise typer.Exit(code)
