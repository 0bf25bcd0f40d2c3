"""Writes the flights from this process, without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from kprod.cli.circumstances import producer_options
from kprod.cli.demo.failure import DemoFailure
from kprod.cli.demo.flights import Flights
from kprod.cli.demo.target import Target
from kprod.cli.demo.written import Written
from kprod.cli.producer_options import open_producer
from kprod.errors import KprodError
from kprod.producer import KafkaProducer

LINGER_MS = 20  # unless an option says otherwise
LOOK_EVERY = 2_000  # records
LAST_SECONDS = 1.0  # after Ctrl-C, for what is on its way


class PlainWriter:
    """One producer in this process, one record after the other."""

    title = "Writing"
    before = "Connecting"

    def __init__(self, options: Mapping[str, Any]) -> None:
        """``options`` are those of the producer."""
        self._options = {"linger_ms": LINGER_MS} if not _names_linger(options) else {}
        self._options.update(options)

    def write(self, flights: Flights, target: Target, progress: Callable[[int], None]) -> Written:
        """Write every flight; tell ``progress`` how many are acknowledged meanwhile.

        Raises DemoFailure when a record is not delivered.
        """
        failures: list[KprodError] = []
        sent_bytes = 0
        started = time.monotonic()
        producer = open_producer(target.bootstrap_servers, self._options)
        try:
            for row in range(len(flights)):
                key, value = flights.key(row), as_json(flights, row)
                producer.send(target.topic, value, key).add_errback(failures.append)
                sent_bytes += len(key or b"") + len(value)
                if row % LOOK_EVERY == 0:
                    progress(_acknowledged(producer))
            report = producer.close()
        except KprodError as error:
            raise DemoFailure(f"a record could not be sent: {error}") from error
        finally:
            producer.close(timeout=LAST_SECONDS)  # when interrupted; else it is closed already
        if report.failed:
            first = next(iter(failures), "not told in time")
            raise DemoFailure(f"{report.failed:,} records failed; the first: {first}")
        seconds = time.monotonic() - started
        told = producer_options(producer.config)
        return Written(records=report.delivered, bytes=sent_bytes, seconds=seconds, options=told)


def _names_linger(options: Mapping[str, Any]) -> bool:
    return any(
        name.replace(".", "_") in ("linger_ms", "queue_buffering_max_ms") for name in options
    )


def as_json(flights: Flights, row: int) -> bytes:
    """One flight as the Spark job writes it, with task 0."""
    fields = dict(zip(flights.columns, flights.lines[row].split(","), strict=True))
    return json.dumps({"row": row, "task": 0, **fields}, separators=(",", ":")).encode()


def _acknowledged(producer: KafkaProducer) -> int:
    return int(producer.metrics()["producer-metrics"]["record-send-total"])
