"""``kprod transactions``: list, describe, commit and abort what a cluster's producers left open."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    open_producer,
    reader_options,
    reader_security,
    take_servers,
)
from kprod.cli.exits import CommandFailure, told_failures

if TYPE_CHECKING:
    from kprod.broker.client_security import ClientSecurity
    from kprod.broker.open_transactions import OpenTransaction

transactions = typer.Typer(
    help="List, describe, commit and abort transactions that were left open.", no_args_is_help=True
)

Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.001, help="Seconds for each answer of the cluster.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Prefix: TypeAlias = Annotated[
    str | None, typer.Option(help="Transactional ids that begin with this text.")
]
Ids: TypeAlias = Annotated[list[str] | None, typer.Argument(help="Transactional ids.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where transactions are listed, and ended by producers with the same options."""

    servers: str
    security: ClientSecurity
    timeout: float
    options: Mapping[str, Any]

    def opened(self) -> list[OpenTransaction]:
        from kprod.broker.open_transactions import open_transactions

        return open_transactions(self.servers, timeout=self.timeout, security=self.security)

    def described(self, name: str) -> OpenTransaction:
        from kprod.broker.open_transactions import described_transaction

        found = described_transaction(
            self.servers, name, timeout=self.timeout, security=self.security
        )
        if found is None:
            raise CommandFailure(f"no coordinator knows the transactional id {name!r}")
        return found

    def end(self, found: OpenTransaction, *, committed: bool) -> None:
        """Raises KprodError when it was ended otherwise meanwhile."""
        from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit

        milliseconds = int(self.timeout * 1000)
        options = {"transactional_id": found.transactional_id, "max_block_ms": milliseconds}
        producer = open_producer(self.servers, {**self.options, **options})
        try:
            if committed:
                prepared = PreparedTransaction(
                    found.transactional_id, found.producer_id, found.epoch
                )
                TwoPhaseCommit(producer).resume(prepared)
                producer.commit_transaction()
            else:  # fences the producer: one that writes still cannot go on under its epoch
                producer.init_transactions()
        finally:
            producer.close(self.timeout)


@contextmanager
def _cluster(
    servers: str | None, timeout: float, option: list[str] | None, config: Path | None
) -> Iterator[_Cluster]:
    options = reader_options(option, config)
    where = take_servers(options, servers) or "localhost:9092"
    with told_failures("kprod transactions"):
        yield _Cluster(where, reader_security(options), timeout, options)


@transactions.command("list")
def list_transactions(
    prefix: Prefix = None,
    as_json: AsJson = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print a line for each open transaction: readers of committed records wait behind it."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = [one for one in cluster.opened() if one.transactional_id.startswith(prefix or "")]
    width = max((len(one.transactional_id) for one in found), default=0)
    for one in found:
        typer.echo(_json(one) if as_json else f"{one.transactional_id:<{width}}  {_summary(one)}")


@transactions.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.")],
    as_json: AsJson = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print what the coordinator knows of a transactional id, whether or not it is open."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = cluster.described(transactional_id)
    if as_json:
        typer.echo(_json(found))
        return
    typer.echo(f"{found.transactional_id}: {_summary(found)}")
    typer.echo(f"  producer id {found.producer_id}, epoch {found.epoch}")
    for place in found.partitions:
        typer.echo(f"  {place.topic}-{place.partition}")


@transactions.command()
def commit(
    transactional_ids: Ids = None,
    prefix: Prefix = None,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Commit open transactions, as far as their producers have come. Asks first.

    For prepared ones only: while its producer is still writing, a part becomes visible.
    """
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        _end(cluster, transactional_ids, prefix, yes=yes, committed=True)


@transactions.command()
def abort(
    transactional_ids: Ids = None,
    prefix: Prefix = None,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Abort open transactions, and fence their producers. Asks first."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        _end(cluster, transactional_ids, prefix, yes=yes, committed=False)


def _end(
    cluster: _Cluster, names: list[str] | None, prefix: str | None, *, yes: bool, committed: bool
) -> None:
    if bool(names) is (prefix is not None):
        raise typer.BadParameter("give transactional ids, or --prefix")
    opened = {one.transactional_id: one for one in cluster.opened() if one.state == "Ongoing"}
    if prefix is not None:
        names = [name for name in opened if name.startswith(prefix)]
    missing = [name for name in names or () if name not in opened]
    if missing:
        raise CommandFailure(f"no open transaction of {', '.join(missing)}; nothing was done")
    found = [opened[name] for name in dict.fromkeys(names or ())]
    if not found:
        typer.echo("no open transactions")
        return
    done = "committed" if committed else "aborted"
    if not yes:
        for one in found:
            typer.echo(f"{one.transactional_id}: {_summary(one)}")
        typer.confirm("Commit them?" if committed else "Abort them?", abort=True)
    for one in found:
        cluster.end(one, committed=committed)
        typer.echo(f"{done} {one.transactional_id}")


def _summary(found: OpenTransaction) -> str:
    places = "1 partition" if len(found.partitions) == 1 else f"{len(found.partitions)} partitions"
    if found.started_ms < 0:
        return f"{found.state}, {places}"
    age = max(0.0, time.time() - found.started_ms / 1000)
    return f"{found.state} for {age:,.0f} s of {found.timeout_ms / 1000:,.0f} s, {places}"


def _json(found: OpenTransaction) -> str:
    places = [place._asdict() for place in found.partitions]
    return json.dumps({**found._asdict(), "partitions": places}, ensure_ascii=False)
