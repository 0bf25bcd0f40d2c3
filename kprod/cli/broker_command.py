"""``kprod broker``: the embedded broker as a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from kprod.cli.lifeline import when_parent_ends
from kprod.cli.stop_signals import STOP_SIGNALS
from kprod.cli.topic_spec import parse_topics
from kprod.errors import KprodError


def broker(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the log lives. Without it: a temporary place, removed at the end."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to create, as NAME:PARTITIONS. May be repeated."),
    ] = None,
    default_partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of topics that are created by being used.")
    ] = 1,
    auto_create_topics: Annotated[
        bool, typer.Option(help="Create a topic when a client asks for one that does not exist.")
    ] = True,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote", help="Listen beyond this machine: anyone may read and write."
        ),
    ] = False,
    until_stdin_closes: Annotated[
        bool,
        typer.Option("--until-stdin-closes", hidden=True, help="Stop with the parent process."),
    ] = False,
) -> None:
    """Run the embedded broker until Ctrl-C or SIGTERM.

    The first line printed is `listening on HOST:PORT`. It is a single node for trying things out
    and for tests, not a cluster.
    """
    topics = parse_topics(topic or [])
    # Blocked from here on, in every thread the broker starts: a signal that comes early waits for
    # sigwait below, so there is no moment at which it could tear a half-started broker down.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    if until_stdin_closes:
        when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        _serve(
            data_dir=data_dir,
            host=host,
            port=port,
            topics=topics,
            default_partitions=default_partitions,
            auto_create_topics=auto_create_topics,
            allow_remote=allow_remote,
        )
    except (KprodError, OSError) as error:
        typer.echo(f"kprod broker: {error}", err=True)
        raise typer.Exit(1) from error


def _serve(**options: Any) -> None:
    """Run a broker with these options until a stop signal comes; the signals are blocked."""
    from kprod.broker import EmbeddedBroker

    with EmbeddedBroker(**options) as server:
        typer.echo(f"listening on {server.bootstrap_servers}")
        signal.sigwait(STOP_SIGNALS)
