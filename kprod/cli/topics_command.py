"""``kprod topics``: lists, describes, creates and deletes the topics of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    parse_pairs,
    reader_options,
)
from kprod.cli.exits import confirm, reported_failures
from kprod.cli.terminal import Raw, echo, json_text

if TYPE_CHECKING:
    from kprod.admin.cluster_client import ClusterClient, TopicDescription

topics = typer.Typer(
    help="List, describe, create and delete the topics of a cluster.", no_args_is_help=True
)

Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.001, help="Timeout of the whole command, in seconds.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Name: TypeAlias = Annotated[str, typer.Argument(help="The topic.")]


@contextmanager
def _cluster(
    servers: str | None, timeout: float, option: list[str] | None, config: Any
) -> Iterator[ClusterClient]:
    """A client for the cluster. A failure is printed, and ends the command with exit code 1."""
    with _connected(reader_options(option, config, servers), timeout) as cluster:
        yield cluster


@contextmanager
def _connected(options: Mapping[str, Any], timeout: float) -> Iterator[ClusterClient]:
    from kprod.admin.cluster_client import connect

    with reported_failures("kprod topics"), connect(None, timeout, options) as cluster:
        yield cluster


@topics.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Include the brokers' internal topics.")
    ] = False,
    as_json: AsJson = False,
    raw: Raw = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print a line for each topic, with its name and the numbers of partitions and replicas."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = [each for each in cluster.topics() if internal or not each.internal]
    if as_json:
        for topic in found:
            echo(_json(topic))
        return
    width = max((len(topic.name) for topic in found), default=0)
    for topic in found:
        echo(f"{topic.name:<{width}}  {_size(topic)}", raw=raw)


@topics.command()
def describe(
    name: Name,
    as_json: AsJson = False,
    raw: Raw = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print the leader and replicas of each partition, and the options set for the topic."""
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        found = cluster.topic(name)
    for line in [_json(found)] if as_json else _lines(found):
        echo(line, raw=raw)


@topics.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option(min=-1, help="Number of partitions; -1 for the brokers' default.")
    ] = -1,
    replicas: Annotated[
        int, typer.Option(min=-1, help="Replicas of each partition; -1 for the brokers' default.")
    ] = -1,
    topic_option: Annotated[
        list[str] | None,
        typer.Option(help="A topic option, as NAME=VALUE: retention.ms=60000. Repeatable."),
    ] = None,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Create a topic, and wait until each of its partitions has a leader."""
    settings = dict(parse_pairs(topic_option, "--topic-option"))
    with _cluster(bootstrap_servers, timeout, option, config) as cluster:
        cluster.create_topic(name, _or_default(partitions), _or_default(replicas), settings)
        cluster.leaders(name)
        made = cluster.topic(name)
    echo(f"created {made.name}: {_size(made)}")


@topics.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="The topics.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    bootstrap_servers: Servers = None,
    timeout: Timeout = 30.0,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Delete topics with all their records. Asks first. Deletes none if one does not exist."""
    options = reader_options(option, config, bootstrap_servers)  # once: the file may be a pipe
    with _connected(options, timeout) as cluster:
        found = [cluster.topic(name) for name in dict.fromkeys(names)]
        if not yes:
            for topic in found:
                echo(f"{topic.name}: {_size(topic)}")
            confirm("Delete with all records?")
    with _connected(options, timeout) as cluster:  # the time at the question does not count
        for topic in found:
            cluster.delete_topic(topic.name)
            echo(f"deleted {topic.name}")


def _or_default(number: int) -> int:
    if number == 0:
        raise typer.BadParameter("expected a number above 0, or -1 for the brokers' default")
    return number


def _size(topic: TopicDescription) -> str:
    replicas = max((len(place.replicas) for place in topic.partitions), default=0)
    return f"{_count(len(topic.partitions), 'partition')}, {_count(replicas, 'replica')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _lines(topic: TopicDescription) -> Iterator[str]:
    yield f"{topic.name}: {_size(topic)}"
    for name, value in sorted(topic.options.items()):
        yield f"  {name}={value}"
    for place in topic.partitions:
        leader = "no leader" if place.leader < 0 else f"leader {place.leader}"
        yield (
            f"  partition {place.number}: {leader}, replicas {_nodes(place.replicas)},"
            f" in sync {_nodes(place.in_sync)}"
        )


def _nodes(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids)) or "none"


def _json(topic: TopicDescription) -> str:
    places = [place._asdict() for place in topic.partitions]
    return json_text({**topic._asdict(), "partitions": places})
