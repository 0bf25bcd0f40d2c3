"""``kprod verifiable-producer``: has the options and output of Kafka's VerifiableProducer."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from kprod.cli.client_options import open_producer, with_config
from kprod.cli.exits import check_output, reported_failures, stop_signals_to
from kprod.errors import KprodError, KprodTimeoutError

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer
    from kprod.types import RecordMetadata

_LONGEST_NAP = 0.05  # seconds until a signal is noticed


def verifiable_producer(
    topic: Annotated[str, typer.Option(help="The topic to write to.")],
    bootstrap_server: Annotated[
        str, typer.Option(help="Bootstrap brokers, as HOST:PORT[,HOST:PORT...].")
    ],
    max_messages: Annotated[
        int, typer.Option(help="Number of records; -1 to send until SIGTERM or Ctrl-C.")
    ] = -1,
    throughput: Annotated[
        int, typer.Option(help="Limit of records per second; -1 for no limit.")
    ] = -1,
    acks: Annotated[
        int | None,
        typer.Option(
            min=-1, max=1, help="0, 1, or -1 for all. Default: those of --command-config, or -1."
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            "--producer.config",
            exists=True,
            dir_okay=False,
            help="A file of producer options in Java's properties format.",
        ),
    ] = None,
    message_create_time: Annotated[
        int, typer.Option(help="Timestamp of the first record, in ms; -1 for now.")
    ] = -1,
    value_prefix: Annotated[
        int | None, typer.Option(help="Values are PREFIX.NUMBER, not NUMBER.")
    ] = None,
    repeating_keys: Annotated[
        int | None, typer.Option(min=1, help="Keys cycle from 0 to this number minus one.")
    ] = None,
) -> None:
    """Send numbers, and report each one as a line of JSON, like the tool of Kafka's system tests.

    So test harnesses for that tool can also test kprod. SIGTERM or Ctrl-C stops sending. Records
    that were already sent are still delivered and reported. With acks=-1, the producer is
    idempotent.
    """
    with reported_failures("kprod verifiable-producer"):
        check_output("events")
    options = with_config(command_config, {} if acks is None else {"acks": acks})
    producer = open_producer(bootstrap_server, options)
    stop = _StopFlag()
    events = _EventWriter(sys.stdout, throughput, stop)
    with stop_signals_to(stop.set), reported_failures("kprod verifiable-producer"):
        events.emit("startup_complete")  # a harness may signal from now on
        _await_cluster(producer, stop)
        for number in _paced(max_messages, throughput, stop):
            key = None if repeating_keys is None else str(number % repeating_keys)
            value = str(number) if value_prefix is None else f"{value_prefix}.{number}"
            stamp = None if message_create_time < 0 else message_create_time + events.age_ms
            events.send(partial(producer.send, topic, timestamp_ms=stamp), topic, key, value)
        producer.close()
        events.end()
        if events.broken is not None:
            raise events.broken
    raise typer.Exit(stop.exit_code)


class _StopFlag:
    """A flag that SIGTERM or Ctrl-C sets. An exception could interrupt the report of a record."""

    exit_code = 0

    def set(self, number: int, _frame: object) -> None:
        """Handle a signal."""
        self.exit_code = self.exit_code or 128 + number


def _await_cluster(producer: KafkaProducer, stop: _StopFlag) -> None:
    """Wait for a broker, as ``send`` would, but stop at a signal.

    Ignores errors other than a time-out, because ``send`` will report them.
    """
    deadline = time.monotonic() + producer.config.max_block_ms / 1000
    while not stop.exit_code and time.monotonic() < deadline:
        try:
            producer.connect(_LONGEST_NAP)
        except KprodTimeoutError:
            continue
        except KprodError:
            pass
        return


def _paced(most: int, throughput: int, stop: _StopFlag) -> Iterator[int]:
    """Numbers from 0, at most ``throughput`` per second. Ends after ``most``, or at a signal."""
    began = time.monotonic()
    for number in itertools.count() if most < 0 else range(most):
        while throughput >= 0 and not stop.exit_code:
            due = began + number / throughput if throughput else float("inf")
            left = due - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _LONGEST_NAP))
        if stop.exit_code:
            return
        yield number


class _EventWriter:
    """Writes events as lines of JSON, with the names of Kafka's tool.

    The callback thread reports outcomes; the main thread reports records that ``send`` refuses.
    Each line is written with one call. If a line cannot be written, ``broken`` is set to the error,
    nothing more is written, and sending stops.
    """

    def __init__(self, out: IO[str], throughput: int, stop: _StopFlag) -> None:
        self.broken: OSError | None = None
        self._out = out
        self._stop = stop
        self._throughput = throughput
        self._began = time.monotonic()
        self._sent = self._acked = 0

    @property
    def age_ms(self) -> int:
        """Milliseconds since the start."""
        return int(1000 * (time.monotonic() - self._began))

    def send(self, send: Callable[..., Any], topic: str, key: str | None, value: str) -> None:
        """Send a record, and report its outcome."""
        try:
            future = send(value.encode(), None if key is None else key.encode())
        except KprodError as error:
            self._failed(topic, key, value, error)
            return
        self._sent += 1
        future.add_callback(self._stored, key, value)
        future.add_errback(partial(self._failed, topic, key, value))

    def _stored(self, key: str | None, value: str, stored: RecordMetadata) -> None:
        self._acked += 1
        where = {"topic": stored.topic, "partition": stored.partition, "offset": stored.offset}
        self.emit("producer_send_success", key=key, value=value, **where)

    def _failed(self, topic: str, key: str | None, value: str, error: BaseException) -> None:
        what = {"exception": type(error).__qualname__, "message": str(error)}
        self.emit("producer_send_error", topic=topic, key=key, value=value, **what)

    def end(self) -> None:
        """Write the last events. Call it after all records were reported."""
        self.emit("shutdown_complete")
        counts = {"sent": self._sent, "acked": self._acked}
        rate = 1000 * self._acked / max(1, self.age_ms)
        self.emit("tool_data", **counts, target_throughput=self._throughput, avg_throughput=rate)

    def emit(self, name: str, **fields: object) -> None:
        """Write one event immediately."""
        event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        if self.broken is None:
            try:
                self._out.write(json.dumps(event) + "\n")
                self._out.flush()
            except OSError as error:
                self.broken = error
                self._stop.exit_code = self._stop.exit_code or 1
