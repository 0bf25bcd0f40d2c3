"""``kprod transactions``: lists, describes, commits and aborts transactions left open."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    open_producer,
    reader_options,
)
from kprod.cli.exits import CommandFailure, confirm, reported_failures
from kprod.cli.spark_batches import batch_of, refusal
from kprod.cli.terminal import Raw, echo, json_text

if TYPE_CHECKING:
    from kprod.admin import GroupOffset, OpenTransaction
    from kprod.types import TopicPartition

transactions = typer.Typer(
    help="List, describe, commit and abort transactions that were left open.", no_args_is_help=True
)

Timeout: TypeAlias = Annotated[
    float,
    typer.Option(min=0.001, max=86_400, help="Seconds to wait for each answer of the cluster."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Prefix: TypeAlias = Annotated[
    str | None, typer.Option(help="Only transactional ids that begin with this text.")
]
Ids: TypeAlias = Annotated[list[str] | None, typer.Argument(help="Transactional ids.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Undecided: TypeAlias = Annotated[
    bool,
    typer.Option("--undecided", help="Commit also what no Spark batch's decision names."),
]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Lists the transactions of a cluster, and ends them with producers of the same options."""

    options: Mapping[str, Any]
    timeout: float

    def opened(self) -> list[OpenTransaction]:
        from kprod.admin import open_transactions

        return open_transactions(timeout=self.timeout, options=self.options)

    def described(self, name: str) -> OpenTransaction:
        from kprod.admin import described_transaction

        found = described_transaction(None, name, timeout=self.timeout, options=self.options)
        if found is None:
            raise CommandFailure(f"no coordinator knows the transactional id {name!r}")
        return found

    def offsets_of(
        self, group: str, *, stable: bool = True
    ) -> Mapping[TopicPartition, GroupOffset]:
        from kprod.admin import committed_offsets

        return committed_offsets(
            None, group, timeout=self.timeout, stable=stable, options=self.options
        )

    def end(self, found: OpenTransaction, *, committed: bool) -> None:
        """End the transaction. Raises KprodError if it meanwhile ended in another way."""
        from kprod.transactional.two_phase_commit import PreparedTransaction, TwoPhaseCommit

        options = {
            "transactional_id": found.transactional_id,
            "max_block_ms": int(self.timeout * 1000),
            # No longer than its own: that one was not above the limit of the brokers.
            "transaction_timeout_ms": min(found.timeout_ms, 60_000),
        }
        producer = open_producer(None, {**self.options, **options})
        try:
            if committed:
                prepared = PreparedTransaction(
                    found.transactional_id, found.producer_id, found.epoch
                )
                TwoPhaseCommit(producer).resume(prepared)
                producer.commit_transaction()
            else:  # fences the producer: one that is still writing cannot continue with its epoch
                producer.init_transactions()
        finally:
            producer.close(self.timeout)


@contextmanager
def _cluster(
    servers: str | None, timeout: float, option: list[str] | None, config: Path | None
) -> Iterator[_Cluster]:
    options = reader_options(option, config, servers)
    with reported_failures("kprod transactions"):
        yield _Cluster(options, timeout)


@transactions.command("list")
def list_transactions(
    prefix: Prefix = None,
    as_json: AsJson = False,
    raw: Raw = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print a line for each open transaction, for which readers of committed records wait."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = [one for one in cluster.opened() if one.transactional_id.startswith(prefix or "")]
    width = max((len(one.transactional_id) for one in found), default=0)
    for one in found:
        line = _json(one) if as_json else f"{one.transactional_id:<{width}}  {_summary(one)}"
        echo(line, raw=raw)


@transactions.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.")],
    as_json: AsJson = False,
    raw: Raw = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print what the coordinator knows about a transactional id, even without a transaction."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = cluster.described(transactional_id)
    if as_json:
        echo(_json(found))
        return
    echo(f"{found.transactional_id}: {_summary(found)}", raw=raw)
    for place in found.partitions:
        echo(f"  {place.topic}-{place.partition}", raw=raw)


@transactions.command()
def commit(
    transactional_ids: Ids = None,
    prefix: Prefix = None,
    yes: Yes = False,
    undecided: Undecided = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Commit open transactions with the records written so far. Asks first.

    Use it only for prepared transactions. If the producer is still writing, only a part of its
    records becomes visible. Of a Spark job, only transactions that belong to the commit decision
    about their batch are committed. The decision identifies them by producer id and epoch.
    """
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = _chosen(cluster, transactional_ids, prefix)
        if not undecided:
            _check_decided(cluster, found)
        _end(cluster, found, yes=yes, committed=True)


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
        found = _chosen(cluster, transactional_ids, prefix)
        _end(cluster, found, yes=yes, committed=False)


def _chosen(
    cluster: _Cluster, names: list[str] | None, prefix: str | None
) -> list[OpenTransaction]:
    if bool(names) is (prefix is not None):
        raise typer.BadParameter("give transactional ids, or --prefix")
    opened = {one.transactional_id: one for one in cluster.opened() if one.state == "Ongoing"}
    if prefix is not None:
        names = [name for name in opened if name.startswith(prefix)]
    missing = [name for name in names or () if name not in opened]
    if missing:
        raise CommandFailure(f"no open transaction of {', '.join(missing)}; nothing was done")
    return [opened[name] for name in dict.fromkeys(names or ())]


def _check_decided(cluster: _Cluster, found: list[OpenTransaction]) -> None:
    refused = [
        f"{one.transactional_id}: {why}"
        for one in found
        if (why := refusal(one, cluster.offsets_of)) is not None
    ]
    if refused:
        raise CommandFailure("\n".join(["nothing was committed:", *refused]))


def _end(cluster: _Cluster, found: list[OpenTransaction], *, yes: bool, committed: bool) -> None:
    if not found:
        echo("no open transactions")
        return
    done = "committed" if committed else "aborted"
    if not yes:
        # A driver that died while it decided left the group's transaction open, and that may be one
        # of those to be aborted: don't wait for its end.
        offsets_of = partial(cluster.offsets_of, stable=False)
        for one in found:
            batch = batch_of(one, offsets_of)
            decided = "" if batch is None else f", decided in batch {batch}"
            echo(f"{one.transactional_id}: {_summary(one)}{decided}")
        confirm("Commit them?" if committed else "Abort them?")
        _check_still_open(cluster, found)
    for one in found:
        cluster.end(one, committed=committed)
        echo(f"{done} {one.transactional_id}")


def _check_still_open(cluster: _Cluster, found: list[OpenTransaction]) -> None:
    """Check that no producer has begun its next transaction. It may have added partitions."""
    now = {one.transactional_id: one._replace(partitions=()) for one in cluster.opened()}
    for one in found:
        if now.get(one.transactional_id) != one._replace(partitions=()):
            raise CommandFailure(
                f"{one.transactional_id}: this transaction is no longer open; nothing was done"
            )


def _summary(found: OpenTransaction) -> str:
    places = "1 partition" if len(found.partitions) == 1 else f"{len(found.partitions)} partitions"
    where = f"{places}, producer id {found.producer_id}, epoch {found.epoch}"
    if found.started_ms < 0:
        return f"{found.state}, {where}"
    age = max(0.0, time.time() - found.started_ms / 1000)
    return f"{found.state} for {age:,.0f} s of {found.timeout_ms / 1000:,.0f} s, {where}"


def _json(found: OpenTransaction) -> str:
    places = [place._asdict() for place in found.partitions]
    return json_text({**found._asdict(), "partitions": places})
