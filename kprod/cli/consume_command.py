"""``kprod consume``: a topic's records on standard output."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    reader_options,
    reader_security,
    take_servers,
)
from kprod.cli.exits import told_failures

if TYPE_CHECKING:
    from kprod.broker.records.record_batch import StoredRecord


Format: TypeAlias = Literal["value", "key-value", "json"]
"""How a record becomes a line."""


def consume(
    topic: Annotated[str, typer.Option(help="The topic to read.")],
    bootstrap_servers: Servers = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest records of the topic.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(help="Go on where this group committed, and commit what was printed."),
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", help="How a record becomes a line.")
    ] = "value",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop behind the records that the topic holds now.")
    ] = False,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print a topic's records, a line each, as they come; end with Ctrl-C.

    JSON lines hold partition, offset, timestamp, key, value and headers; what is not UTF-8 is in
    base64, under `key_base64` or `value_base64`. A group is read alone: with members it refuses.
    Of the options those about connecting count: security_protocol, ssl_* and sasl_*.
    """
    options = reader_options(option, config)
    servers = take_servers(options, bootstrap_servers)
    from kprod.broker.log_reader import TopicFollower

    with told_failures("kprod consume"):
        follower = TopicFollower(
            servers or "localhost:9092",
            topic,
            from_beginning=from_beginning,
            group=group,
            security=reader_security(options),
        )
        with follower:
            _print(follower.poll, output, count, lambda: until_end and follower.at_end)
            follower.commit()


def _print(
    poll: Callable[[], Iterator[tuple[int, StoredRecord]]],
    output: Format,
    count: int | None,
    ended: Callable[[], bool],
) -> None:
    """Until ``count`` records were printed, ``ended`` says so, or Ctrl-C."""
    printed = 0
    try:
        while not ended():
            for partition, record in poll():
                typer.echo(_line(partition, record, output))
                printed += 1
                if printed == count:
                    return
    except KeyboardInterrupt:
        return


def _line(partition: int, record: StoredRecord, output: Format) -> str:
    if output == "value":
        return _text(record.value)
    if output == "key-value":
        return f"{_text(record.key)}\t{_text(record.value)}"
    fields: dict[str, object] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False)


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="replace")


def _field(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
