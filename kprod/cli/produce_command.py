"""``kprod produce``: sends lines as records."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BufferedReader, UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    open_producer,
    parse_options,
    parse_pairs,
    separator,
    with_config,
)
from kprod.cli.exits import Stopped, StopRequest
from kprod.cli.record_lines import BadLineError, LineFormat, LineReader, LineRecord, typed
from kprod.cli.terminal import complain
from kprod.errors import InvalidRecordError, KprodError, PartitionError, RecordTooLargeError
from kprod.lock import Lock

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer
    from kprod.types import Header


OF_THE_LINE = (RecordTooLargeError, InvalidRecordError, PartitionError)
READ_AT_ONCE = 65_536
MOST_COMPLAINTS = 10  # failures reported one by one; the rest is only counted


class LineSender:
    """Sends lines to one topic.

    One thread may use it. The producer's callback thread calls it, too, to report failures.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        topic: str,
        *,
        key: bytes | None = None,
        partition: int | None,
        headers: list[Header],
        stop: StopRequest,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._key = key
        self._partition = partition
        self._headers = headers
        self._stop = stop
        self.read = 0
        """Lines taken from the input; if a signal interrupts a line, reports may not contain it."""
        self._lock = Lock()  # guards _complaints, which two threads change
        self._complaints = 0

    def send_all(self, records: Iterable[LineRecord | BadLineError]) -> None:
        """Send until the input ends. Raises KprodError if the producer cannot send any more."""
        for record in records:
            self.read += 1
            if isinstance(record, BadLineError):
                self._report(str(record))
            elif self._stop.late:
                self._report(f"line {record.number}: was read, and not sent before the end")
            else:
                self._send(record)

    def _send(self, record: LineRecord) -> None:
        where = f"line {record.number}"
        try:
            with self._stop.waiting():
                future = self._producer.send(
                    self._topic,
                    record.value,
                    self._key if record.key is None else record.key,
                    [*self._headers, *record.headers],
                    record.partition if self._partition is None else self._partition,
                    record.timestamp_ms,
                )
        except Stopped as stopped:
            self._report(f"{where}: {stopped} came while it was being sent; it may be in the topic")
        except OF_THE_LINE as error:  # the next line may be valid
            self._report(f"{where}: {error.with_number()}")
        except KprodError as error:
            self._report(f"{where}: {error.with_number()}")
            raise
        else:
            future.add_errback(lambda error: self._report(f"{where}: {error.with_number()}"))

    def _report(self, complaint: str) -> None:
        with self._lock:
            self._complaints += 1
            number = self._complaints
        if number <= MOST_COMPLAINTS:
            complain(complaint)
        if number == MOST_COMPLAINTS:
            complain("further failures are only counted")


LAST_SECONDS = 10.0  # after Ctrl-C, for lines that were already read
CLOSING_SECONDS = 1.0  # at least so many of these are for what was sent


def produce(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    topic: Annotated[str, typer.Option(help="The topic to write to.")],
    bootstrap_servers: Servers = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Read lines from this file, not standard input."
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(help="Text between key and value in a line. Default: lines have no keys."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The key of every record whose line has none.")
    ] = None,
    delimiter: Annotated[str, typer.Option(help="Text that ends each record.")] = r"\n",
    empty_is_null: Annotated[
        bool,
        typer.Option("--empty-is-null", help="Send an empty value as null."),
    ] = False,
    form: Annotated[
        LineFormat,
        typer.Option("--format", help="Format of a line: text (the value), or a record as JSON."),
    ] = "text",
    partition: Annotated[
        int | None, typer.Option(min=0, help="Send everything to this partition.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="A header of every record, as NAME=VALUE. Repeatable.")
    ] = None,
    option: Options = None,
    config: ConfigFile = None,
) -> None:
    """Send each line of standard input, or of a file, as one record.

    JSON lines have the format of `kprod consume --format json`; only the value is required. Stops
    at the end of the input. Ctrl-C stops earlier, but still delivers the lines that were read. A
    summary goes to standard error. The exit code is 0 only if every line was delivered.
    """
    if form == "json" and (key_separator is not None or empty_is_null):
        raise typer.BadParameter("--key-separator and --empty-is-null apply to --format text only")
    headers: list[Header] = [
        (name, typed(value)) for name, value in parse_pairs(header, "--header")
    ]
    options = with_config(config, parse_options(option, "--option"))
    between = None if key_separator is None else separator("--key-separator", key_separator)
    reader = LineReader(
        delimiter=separator("--delimiter", delimiter),
        key_separator=between,
        empty_is_null=empty_is_null,
        form=form,
    )
    with StopRequest(LAST_SECONDS - CLOSING_SECONDS) as stop:
        try:
            with stop.waiting():
                lines = _open(file)
                producer = open_producer(bootstrap_servers, options)
        except Stopped as stopped:
            raise typer.Exit(stopped.exit_code) from None
        sender = LineSender(
            producer,
            topic,
            key=None if key is None else typed(key),
            partition=partition,
            headers=headers,
            stop=stop,
        )
        with lines:
            chunks = _Input(lines, stop)
            code = _deliver(producer, sender, reader.read(chunks, chunks.cut_off), stop)
            raise typer.Exit(code or int(chunks.failed))


def _deliver(producer: Any, sender: LineSender, records: Iterator[Any], stop: StopRequest) -> int:
    """Send everything and print the summary; return the exit code."""
    code = 0
    try:
        sender.send_all(records)
        if stop.stopped is None:
            with stop.waiting():
                producer.close()
    except Stopped:
        pass
    except KprodError:
        complain("the rest of the input is not sent")
        code = 1
    report = producer.close(timeout=stop.left(LAST_SECONDS))
    lost = sender.read - report.delivered
    complain(f"{report.delivered:,} delivered, {lost:,} failed")
    if stop.stopped is not None:
        return stop.stopped.exit_code
    return code or (1 if lost else 0)


def _open(file: Path | None) -> BufferedReader:
    if file is not None:
        return file.open("rb")
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed; pipe lines into it, or give --file")
    return cast(BufferedReader, sys.stdin.buffer)


class _Input:
    """The parts of the input, each as soon as it can be read, until the end, a signal or an error.

    An error is reported, and sets ``failed``.
    """

    def __init__(self, lines: BufferedReader, stop: StopRequest) -> None:
        self._lines = lines
        self._stop = stop
        self.failed = False

    def cut_off(self) -> bool:
        """Whether the input ended because of a signal or an error."""
        return self.failed or self._stop.stopped is not None

    def __iter__(self) -> Iterator[bytes]:
        while not self.cut_off():
            try:
                # no descriptor: no need to wait
                with self._stop.waiting(), suppress(UnsupportedOperation):
                    select.select([self._lines], [], [])
            except Stopped:
                return
            # Outside the block: a signal between reading and the next statement would lose data.
            try:
                chunk = self._lines.read1(READ_AT_ONCE)
            except OSError as error:
                complain(f"the rest of the input cannot be read: {error}")
                self.failed = True
                return
            if not chunk:
                return
            yield chunk
