"""``kprod broker``: the embedded broker as a separate process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from kprod.cli.child_process import when_parent_ends
from kprod.cli.exits import heeded_signals, reported_failures
from kprod.cli.terminal import echo


def parse_topics(specs: list[str]) -> dict[str, int]:
    """Partitions by topic. Raises typer.BadParameter unless each is ``NAME`` or ``NAME:COUNT``."""
    return dict(map(_parse, specs))


def _parse(spec: str) -> tuple[str, int]:
    name, colon, count = spec.partition(":")
    if not name or (colon and not (count.isdecimal() and int(count) > 0)):
        raise typer.BadParameter(f"expected NAME:PARTITIONS, as in flights:6; got {spec!r}")
    return name, int(count) if colon else 1


Certificate = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="Use TLS, with the certificate and key in this PEM file."
    ),
]
ClientAuthorities = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="With --tls: require client certificates signed by one of these authorities.",
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Require SASL logins (PLAIN, SCRAM): a file with lines of NAME:PASSWORD.",
    ),
]


def secured_listeners(
    host: str, port: int, tls: Path | None, client_ca: Path | None, users: Path | None
) -> list[Any]:
    """The listener that the options describe. Raises typer.BadParameter for an invalid file."""
    import ssl

    from kprod.broker import Authentication, make_listener, tls_context

    if client_ca is not None and tls is None:
        raise typer.BadParameter("--tls-client-ca needs --tls")
    try:
        context = None
        if tls is not None:
            context = tls_context(str(tls), None, None if client_ca is None else str(client_ca))
    except (ssl.SSLError, OSError) as error:
        raise typer.BadParameter(f"--tls: {error}") from error
    login = None if users is None else Authentication(_read_users(users))
    name = ("SASL_" if login else "") + ("SSL" if context else "PLAINTEXT")
    return [make_listener(name, host=host, port=port, tls=context, authentication=login)]


def _read_users(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--users: {error}") from error
    pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
    if not pairs or not all(name and colon and password for name, colon, password in pairs):
        raise typer.BadParameter("--users: expected lines of NAME:PASSWORD")
    return {name.strip(): password for name, _, password in pairs}


def broker(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 9092,
    data_dir: Annotated[
        list[Path] | None,
        typer.Option(
            help="Directory of the log. Default: a temporary directory, removed at the end. "
            "May be repeated: partitions are spread over the directories."
        ),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=1, help="Nodes to run, each on its own port, sharing one log.")
    ] = 1,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to create, as NAME:PARTITIONS. May be repeated."),
    ] = None,
    default_partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of topics that are created on first use.")
    ] = 1,
    auto_create_topics: Annotated[
        bool, typer.Option(help="Create a topic when a client asks for one that does not exist.")
    ] = True,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Accept connections from other machines: any host may read and write.",
        ),
    ] = False,
    tls: Certificate = None,
    tls_client_ca: ClientAuthorities = None,
    users: Users = None,
    until_stdin_closes: Annotated[
        bool,
        typer.Option("--until-stdin-closes", hidden=True, help="Stop with the parent process."),
    ] = False,
) -> None:
    """Run the embedded broker until Ctrl-C or SIGTERM.

    The first line of output is `listening on HOST:PORT`, with commas between several nodes. The
    broker is meant for experiments and tests: all nodes run in one process.
    """
    options = {
        "log_dirs": data_dir or (),
        "nodes": nodes,
        "listeners": secured_listeners(host, port, tls, tls_client_ca, users),
        "topics": parse_topics(topic or []),
        "default_partitions": default_partitions,
        "auto_create_topics": auto_create_topics,
        "allow_remote": allow_remote,
    }
    _serve(until_stdin_closes, options)


def _serve(until_stdin_closes: bool, options: dict[str, Any]) -> None:
    """Run a broker with these options until a stop signal comes."""
    # Signals are blocked from here on, in every thread the broker starts: an early one waits for
    # sigwait below, and cannot interrupt the broker while it starts.
    stopping = heeded_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    if until_stdin_closes:
        when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with reported_failures("kprod broker"):
        from kprod.broker import EmbeddedBroker
        from kprod.broker.open_files import allow_many_files

        allow_many_files()
        with EmbeddedBroker(**options) as server:
            echo(f"listening on {server.bootstrap_servers}")
            signal.sigwait(stopping)
