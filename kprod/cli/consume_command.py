"""``kprod consume``: a topic's records on standard output."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    reader_options,
    separator,
)
from kprod.cli.exits import STOP_SIGNALS, check_output, reported_failures, stop_signals_to
from kprod.cli.record_lines import PrintFormat, Show, printed
from kprod.cli.record_template import RecordTemplate
from kprod.cli.terminal import Raw, complain, shown
from kprod.errors import KprodError, numbered

if TYPE_CHECKING:
    from kprod.admin.leader_wait import LeaderWait
    from kprod.admin.log_reader import Begin, TopicFollower
    from kprod.records.record_batch import StoredRecord


Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-f",
        help="Print this for each record instead. Placeholders, as in kcat: %t topic, %p partition,"
        " %o offset, %T timestamp, %k key, %s value, %K and %S their lengths, %h headers.",
    ),
]

Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        help="Seconds to wait for a missing topic, leader or broker, or for the end of a"
        " transaction with the group's offsets. Default: no limit.",
    ),
]


Isolation = Annotated[
    Literal["read_committed", "read_uncommitted"],
    typer.Option(
        help="Whether to stop before open transactions and leave out aborted ones, or to print"
        " everything."
    ),
]


def consume(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    topic: Annotated[str, typer.Option(help="The topic to read.")],
    bootstrap_servers: Servers = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest records of the topic.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            help="Where to start: beginning, end, 5, -5 (the last five), @1763834400000 (a time)."
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Continue at this group's committed offsets; commit what was printed."),
    ] = None,
    isolation: Isolation = "read_committed",
    output: Annotated[
        PrintFormat, typer.Option("--format", help="Output format of a record.")
    ] = "value",
    key_separator: Annotated[
        str, typer.Option(help="Text between key and value in the format key-value.")
    ] = r"\t",
    delimiter: Annotated[str, typer.Option(help="Text after each record.")] = r"\n",
    template: Template = None,
    raw: Raw = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end of the topic.")
    ] = False,
    timeout: Timeout = None,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Print a topic's records as they arrive, one per line, until Ctrl-C.

    JSON lines contain partition, offset, timestamp, key, value and headers. Bytes that are not
    UTF-8 are written in base64, as `key_base64` or `value_base64`. On a terminal, control
    characters are escaped; a pipe gets the bytes unchanged. A group that has active members is
    refused. Of the producer's options, only those for connecting are used: security_protocol,
    ssl_*, sasl_*, proxy_url, transport, unix_socket_path and receive_message_max_bytes.
    """
    options = reader_options(option, config, bootstrap_servers)
    from kprod.admin.log_reader import TopicFollower

    begin = _begin(offset or ("beginning" if from_beginning else "end"))
    show = partial(shown, raw=raw)
    print_record = _record_printer(topic, output, key_separator, delimiter, template, show)
    stop = _Stop()
    with reported_failures("kprod consume"), stop_signals_to(stop.came):
        check_output("records")  # the group would commit records that were never printed
        follower = TopicFollower(
            topic,
            options,
            begin=begin,
            wait=_wait(partition, timeout),
            group=group,
            committed=isolation == "read_committed",
            skipped=partial(_report_skipped, topic),
        )
        with follower:
            try:
                with stop.reading():
                    _print(follower, print_record, count, until_end=until_end)
            except KprodError:  # of reading: the records before were printed
                follower.commit()
                raise
            follower.commit()


class _Stop:
    """The first signal ends the reading, so that the group is committed. The second one kills."""

    def __init__(self) -> None:
        self._committing = False

    def came(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if not self._committing:
            raise KeyboardInterrupt

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block that a signal ends. After it, the first signal does not interrupt the commit."""
        try:
            try:
                yield
            finally:
                self._committing = True
        except KeyboardInterrupt:
            pass


def _wait(partition: int | None, timeout: float | None) -> LeaderWait:
    from kprod.admin.leader_wait import LeaderWait

    wait = LeaderWait(notify=_report_missing, partition=partition)
    return wait if timeout is None else wait._replace(seconds=timeout)


def _report_missing(missing: KprodError) -> None:
    complain(f"kprod consume: {numbered(missing)}; waiting")


def _report_skipped(topic: str, partition: int, position: int, start: int) -> None:
    complain(
        f"kprod consume: {topic}-{partition}: the records from offset {position} to {start - 1}"
        f" were deleted before they were read; continuing at {start}"
    )


def _begin(offset: str) -> Begin:
    """A function that returns the start offset. Raises BadParameter for an invalid ``offset``."""
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
    return lambda reader: min(max(reader.start(), number), reader.high_watermark())


def _record_printer(
    topic: str,
    form: PrintFormat,
    key_separator: str,
    delimiter: str,
    template: str | None,
    show: Show,
) -> Callable[[int, StoredRecord], None]:
    """A function that prints a record. Raises BadParameter for an unknown template placeholder."""
    between, end = separator("--key-separator", key_separator), separator("--delimiter", delimiter)
    line = partial(printed, form=form, key_separator=between, show=show)
    if template is not None:
        try:
            line, end = partial(RecordTemplate(template, show), topic), b""
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--template") from None
    return lambda partition, record: typer.echo(line(partition, record) + end, nl=False)


def _print(
    follower: TopicFollower,
    print_record: Callable[[int, StoredRecord], None],
    count: int | None,
    *,
    until_end: bool,
) -> None:
    """Print until ``count`` records are printed, or the topic's end is reached."""
    printed = 0
    while not (until_end and follower.at_end):
        for partition, record in follower.poll():
            print_record(partition, record)
            follower.shown(partition, record)
            printed += 1
            if printed == count:
                return
