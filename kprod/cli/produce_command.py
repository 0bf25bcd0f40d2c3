"""``kprod produce``: lines to records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from kprod.cli.client_options import (
    ConfigFile,
    Options,
    Servers,
    open_producer,
    parse_options,
    parse_pairs,
    with_config,
)
from kprod.cli.exits import Stopped, exit_by_stop_signals
from kprod.cli.record_lines import BadLineError, LineFormat, LineReader, LineRecord, unescaped
from kprod.errors import InvalidRecordError, KprodError, PartitionError, RecordTooLargeError
from kprod.lock import Lock
from kprod.types import Header

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer
    from kprod.types import Header


OF_THE_LINE = (RecordTooLargeError, InvalidRecordError, PartitionError)
MOST_COMPLAINTS = 10  # failures told one by one; the rest is only counted


class LineSender:
    """Sends to one topic. Thread: the caller's; failures are told in the producer's, too."""

    def __init__(
        self,
        producer: KafkaProducer,
        topic: str,
        *,
        key: bytes | None = None,
        partition: int | None,
        headers: list[Header],
        complain: Callable[[str], object],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._key = key
        self._partition = partition
        self._headers = headers
        self._complain = complain
        self.read = 0
        """Lines taken from the input: one that a signal interrupts may be in no report."""
        self._lock = Lock()  # guards the one below: two threads complain
        self._complaints = 0

    def send_all(self, records: Iterable[LineRecord | BadLineError]) -> None:
        """Send until the input ends. Raises KprodError when nothing at all can be sent any more."""
        for record in records:
            self.read += 1
            if isinstance(record, BadLineError):
                self._tell(str(record))
            else:
                self._send(record)

    def _send(self, record: LineRecord) -> None:
        where = f"line {record.number}"
        try:
            future = self._producer.send(
                self._topic,
                record.value,
                self._key if record.key is None else record.key,
                [*self._headers, *record.headers],
                record.partition if self._partition is None else self._partition,
                record.timestamp_ms,
            )
        except OF_THE_LINE as error:  # the next one may do
            self._tell(f"{where}: {error.with_number()}")
        except KprodError as error:
            self._tell(f"{where}: {error.with_number()}")
            raise
        else:
            future.add_errback(lambda error: self._tell(f"{where}: {error.with_number()}"))

    def _tell(self, complaint: str) -> None:
        with self._lock:
            self._complaints += 1
            number = self._complaints
        if number <= MOST_COMPLAINTS:
            self._complain(complaint)
        if number == MOST_COMPLAINTS:
            self._complain("further failures are only counted")


LAST_SECONDS = 10.0  # after Ctrl-C, for what was read already


def produce(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    topic: Annotated[str, typer.Option(help="Where the records go.")],
    bootstrap_servers: Servers = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Read lines from here instead of stdin."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(help="What stands between key and value in a line. Without it: no keys."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The key of every record, if lines have none of their own.")
    ] = None,
    delimiter: Annotated[str, typer.Option(help="What ends each record.")] = r"\n",
    empty_is_null: Annotated[
        bool, typer.Option("--empty-is-null", help="An empty value is a null, which deletes a key.")
    ] = False,
    form: Annotated[
        LineFormat,
        typer.Option("--format", help="What a line is: the value, or a record as JSON."),
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

    JSON lines are those of `kprod consume --format json`; partition, timestamp and headers may be
    missing. Ends when the input ends; Ctrl-C ends it earlier, after what was read is delivered. A
    summary goes to standard error. The exit code is 0 only when every line was delivered.
    """
    headers: list[Header] = [
        (name, value.encode()) for name, value in parse_pairs(header, "--header")
    ]
    options = with_config(config, parse_options(option, "--option"))
    ends = _ends(delimiter)
    with exit_by_stop_signals(), _lines(file) as lines:
        producer = open_producer(bootstrap_servers, options)
        sender = LineSender(
            producer,
            topic,
            key=None if key is None else key.encode(),
            partition=partition,
            headers=headers,
            complain=_complain,
        )
        reader = LineReader(
            delimiter=ends,
            key_separator=unescaped(key_separator).encode() if key_separator else None,
            empty_is_null=empty_is_null,
            form=form,
        )
        raise typer.Exit(_deliver(producer, sender, reader.read(lines)))


def _ends(delimiter: str) -> bytes:
    """What ends each record. Raises typer.BadParameter where nothing does."""
    if not delimiter:
        raise typer.BadParameter("--delimiter: expected at least one character")
    return unescaped(delimiter).encode()


def _deliver(producer: Any, sender: LineSender, records: Iterator[Any]) -> int:
    """Send everything, print the account, return the exit code."""
    code = 0
    try:
        sender.send_all(records)
        report = producer.close()
    except Stopped as stopped:
        report, code = producer.close(timeout=LAST_SECONDS), stopped.exit_code
    except KprodError:
        _complain("the rest of the input is not sent")
        report, code = producer.close(timeout=LAST_SECONDS), 1
    lost = sender.read - report.delivered
    _complain(f"{report.delivered:,} delivered, {lost:,} failed")
    return code or (1 if lost else 0)


@contextmanager
def _lines(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None and sys.stdin is None:
        raise typer.BadParameter("standard input is closed; pipe lines into it, or give --file")
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as lines:
        yield lines


def _complain(text: str) -> None:
    typer.echo(text, err=True)
