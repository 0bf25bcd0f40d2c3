"""``kprod consume``: a topic's records on standard output."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    reader_options,
    reader_security,
    take_servers,
)
from kprod.cli.exits import STOP_SIGNALS, CommandFailure, stop_signals_to, told_failures
from kprod.cli.record_lines import PrintFormat, printed, unescaped
from kprod.cli.record_template import RecordTemplate
from kprod.errors import KprodError, numbered

if TYPE_CHECKING:
    from kprod.broker.leader_wait import LeaderWait
    from kprod.broker.log_reader import Begin, TopicFollower
    from kprod.broker.records.record_batch import StoredRecord


Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-f",
        help="Print this for each record instead, with kcat's signs: %t topic, %p partition,"
        " %o offset, %T timestamp, %k key, %s value, %K and %S their lengths, %h headers.",
    ),
]

Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="Seconds to wait for a topic, leader or broker that is missing. Without it: for ever.",
    ),
]


def consume(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    topic: Annotated[str, typer.Option(help="The topic to read.")],
    bootstrap_servers: Servers = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest records of the topic.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            help="Begin there: beginning, end, 5, -5 (the last five), @1763834400000 (a time)."
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Go on where this group committed, and commit what was printed."),
    ] = None,
    output: Annotated[
        PrintFormat, typer.Option("--format", help="How a record becomes a line.")
    ] = "value",
    key_separator: Annotated[
        str, typer.Option(help="What stands between key and value of key-value.")
    ] = r"\t",
    delimiter: Annotated[str, typer.Option(help="What ends each record.")] = r"\n",
    template: Template = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop behind the records that the topic holds now.")
    ] = False,
    timeout: Timeout = None,
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

    begin = _begin(offset or ("beginning" if from_beginning else "end"))
    tell = _teller(topic, output, unescaped(key_separator), unescaped(delimiter), template)
    with told_failures("kprod consume"), stop_signals_to(_stop):
        if sys.stdout is None:  # a group would be committed for records that nobody has seen
            raise CommandFailure("standard output is closed: records could not be printed")
        follower = TopicFollower(
            servers or "localhost:9092",
            topic,
            begin=begin,
            wait=_wait(partition, timeout),
            group=group,
            security=reader_security(options),
        )
        with follower:
            _print(follower, tell, count, until_end=until_end)
            follower.commit()


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the reading as Ctrl-C does, so that a group is committed; a second one kills."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _wait(partition: int | None, timeout: float | None) -> LeaderWait:
    from kprod.broker.leader_wait import LeaderWait

    wait = LeaderWait(tell=_tell_missing, partition=partition)
    return wait if timeout is None else wait._replace(seconds=timeout)


def _tell_missing(missing: KprodError) -> None:
    typer.echo(f"kprod consume: {numbered(missing)}; waiting", err=True)


def _begin(offset: str) -> Begin:
    """Where a partition is begun. Raises BadParameter for what is none of the five forms."""
    if offset == "beginning":
        return lambda reader: reader.start()
    if offset == "end":
        return lambda reader: reader.end()
    moment = offset.startswith("@")
    try:
        number = int(offset[1:] if moment else offset)
    except ValueError:
        raise typer.BadParameter(
            f"expected beginning, end, a number or @ and milliseconds since 1970, got {offset!r}",
            param_hint="--offset",
        ) from None
    if moment:
        return lambda reader: reader.at_time(number)
    if number < 0:
        return lambda reader: max(reader.start(), reader.end() + number)
    return lambda reader: min(max(reader.start(), number), reader.end())


def _teller(
    topic: str, form: PrintFormat, key_separator: str, delimiter: str, template: str | None
) -> Callable[[int, StoredRecord], None]:
    """The printer of a record. Raises BadParameter for an unknown sign in a template."""
    show = partial(printed, form=form, key_separator=key_separator)
    end = delimiter.encode()
    if template is not None:
        try:
            show, end = partial(RecordTemplate(unescaped(template)), topic), b""
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--template") from None
    return lambda partition, record: typer.echo(show(partition, record) + end, nl=False)


def _print(
    follower: TopicFollower,
    tell: Callable[[int, StoredRecord], None],
    count: int | None,
    *,
    until_end: bool,
) -> None:
    """Print until ``count`` records were printed, the end was reached, or a signal comes."""
    printed = 0
    try:
        while not (until_end and follower.at_end):
            for partition, record in follower.poll():
                tell(partition, record)
                follower.shown(partition, record)
                printed += 1
                if printed == count:
                    return
    except KeyboardInterrupt:
        return
