"""What poll and flush tell besides delivery reports: statistics, failed connections, throttling"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, NamedTuple

from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaError
from kprod.confluent.options import Settings
from kprod.confluent.reports import DeliveryReports
from kprod.confluent.statistics import statistics
from kprod.errors import KprodError
from kprod.producer import KafkaProducer

monotonic = SystemClock.monotonic

LONG = 10.0**9


class ThrottleEvent(NamedTuple):
    """A broker asks for fewer requests; ``throttle_time`` in seconds."""

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return (
            f"{self.broker_name}/{self.broker_id} throttled for {self.throttle_time * 1000:.0f} ms"
        )


class Events:
    """Hears of events in the sender's thread, and has ``poll`` tell the application of them."""

    def __init__(self, settings: Settings, reports: DeliveryReports) -> None:
        self._settings = settings
        self._reports = reports
        self._began = self._told_at = monotonic()

    def listen_to(self, native: KafkaProducer) -> None:
        """Hear of what the callbacks that are there ask for."""
        if self._settings.error_cb is not None:
            native.metadata.on_trouble = self._heard_of_trouble
        if self._settings.throttle_cb is not None:
            native.metadata.on_throttle = self._heard_of_throttling

    def until_statistics(self) -> float:
        """Seconds until ``stats_cb`` is due."""
        interval = self._settings.statistics_interval
        if not interval or self._settings.stats_cb is None:
            return LONG
        return max(0.0, self._told_at + interval - monotonic())

    def tell_statistics(self, native: KafkaProducer) -> None:
        """Have ``stats_cb`` called if it is due."""
        if self._settings.stats_cb is not None and self.until_statistics() <= 0:
            self._told_at = monotonic()
            told = statistics(native, self._reports.waiting, self._began)
            self._reports.call_soon(partial(self._settings.stats_cb, told))

    def _heard_of_trouble(self, broker: str, error: KprodError) -> None:
        if self._settings.error_cb is not None:
            told = KafkaError(KafkaError._TRANSPORT, f"{broker}: {error}")
            self._reports.call_soon(partial(self._settings.error_cb, told))

    def _heard_of_throttling(self, address: str, node_id: int, seconds: float) -> None:
        if self._settings.throttle_cb is not None:
            told = ThrottleEvent(address, node_id, seconds)
            self._reports.call_soon(partial(self._settings.throttle_cb, told))


class _Forwarded(logging.Handler):
    """What kprod logs about one producer, for a logger of the application's."""

    def __init__(self, logger: Any, client_id: str) -> None:
        super().__init__()
        self._logger = logger
        self._client_id = client_id

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(self._client_id):
            self._logger.log(record.levelno, "%s", text)


def forwarding(logger: Any, client_id: str) -> logging.Handler:
    """Let the application's ``logger`` have what kprod logs of this producer, until removed."""
    handler = _Forwarded(logger, client_id)
    logging.getLogger("kprod").addHandler(handler)
    return handler
