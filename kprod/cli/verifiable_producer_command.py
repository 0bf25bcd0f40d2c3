"""``kprod verifiable-producer``: kprod behind the protocol of Kafka's VerifiableProducer."""

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
from kprod.cli.exits import stop_signals_to, told_failures
from kprod.errors import KprodError, KprodTimeoutError

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer
    from kprod.types import RecordMetadata

_LONGEST_NAP = 0.05  # seconds until a signal is noticed


def verifiable_producer(
    topic: Annotated[str, typer.Option(help="Where the records go.")],
    bootstrap_server: Annotated[
        str, typer.Option(help="Brokers to ask first, as HOST:PORT[,HOST:PORT...].")
    ],
    max_messages: Annotated[
        int, typer.Option(help="How many records; -1 until SIGTERM or Ctrl-C.")
    ] = -1,
    throughput: Annotated[
        int, typer.Option(help="Records a second, at most; -1 for no limit.")
    ] = -1,
    acks: Annotated[int, typer.Option(min=-1, max=1, help="0, 1, or -1 for all.")] = -1,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            "--producer.config",
            exists=True,
            dir_okay=False,
            help="Options of the producer in Java's properties format.",
        ),
    ] = None,
    message_create_time: Annotated[
        int, typer.Option(help="Timestamp of the first record, in ms; -1 for now.")
    ] = -1,
    value_prefix: Annotated[
        int | None, typer.Option(help="Values are PREFIX.NUMBER, not NUMBER.")
    ] = None,
    repeating_keys: Annotated[
        int | None, typer.Option(min=1, help="Keys from 0 to this less one, again and again.")
    ] = None,
) -> None:
    """Send numbers, and report each on a line of JSON, as Kafka's own tool for its tests does.

    So harnesses that drive that tool drive kprod. SIGTERM or Ctrl-C ends the sending; what was sent
    is delivered and reported before the end. Records are idempotent with acks=-1.
    """
    options = with_config(command_config, {"acks": acks})
    producer = open_producer(bootstrap_server, options)
    stop = _StopFlag()
    telling = _Telling(sys.stdout, throughput, stop)
    with stop_signals_to(stop.set), told_failures("kprod verifiable-producer"):
        telling.tell("startup_complete")  # a harness may signal from now on
        _await_cluster(producer, stop)
        for number in _paced(max_messages, throughput, stop):
            key = None if repeating_keys is None else str(number % repeating_keys)
            value = str(number) if value_prefix is None else f"{value_prefix}.{number}"
            stamp = None if message_create_time < 0 else message_create_time + telling.age_ms
            telling.send(partial(producer.send, topic, timestamp_ms=stamp), topic, key, value)
        producer.close()
        telling.end()
        if telling.broken is not None:
            raise telling.broken
    raise typer.Exit(stop.exit_code)


class _StopFlag:
    """Set by the first SIGTERM or Ctrl-C: no exception comes between a record and its report."""

    exit_code = 0

    def set(self, number: int, _frame: object) -> None:
        """The handler of signals."""
        self.exit_code = self.exit_code or 128 + number


def _await_cluster(producer: KafkaProducer, stop: _StopFlag) -> None:
    """Wait for a broker, as ``send`` would, but no longer than until a signal comes.

    What else keeps brokers away is told by ``send``.
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
    """Numbers from 0, ``throughput`` a second at most, until ``most`` were sent or it stops."""
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


class _Telling:
    """Events as lines of JSON, in the names of Kafka's tool.

    Outcomes come by the callbacks' thread; the main thread reports only records that ``send``
    refuses meanwhile, and a line is written as a whole. Where one cannot be written, ``broken``
    says why, nothing more is written, and the sending stops.
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
        """Send a record, and tell what becomes of it."""
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
        self.tell("producer_send_success", key=key, value=value, **where)

    def _failed(self, topic: str, key: str | None, value: str, error: BaseException) -> None:
        what = {"exception": type(error).__qualname__, "message": str(error)}
        self.tell("producer_send_error", topic=topic, key=key, value=value, **what)

    def end(self) -> None:
        """Every record has been reported."""
        self.tell("shutdown_complete")
        counts = {"sent": self._sent, "acked": self._acked}
        rate = 1000 * self._acked / max(1, self.age_ms)
        self.tell("tool_data", **counts, target_throughput=self._throughput, avg_throughput=rate)

    def tell(self, name: str, **fields: object) -> None:
        """One event, at once."""
        event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        if self.broken is None:
            try:
                self._out.write(json.dumps(event) + "\n")
                self._out.flush()
            except OSError as error:
                self.broken = error
                self._stop.exit_code = self._stop.exit_code or 1
