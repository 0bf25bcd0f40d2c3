"""What poll and flush tell besides delivery reports: statistics, failed connections, throttling"""

from __future__ import annotations

import logging
import weakref
from functools import partial
from typing import Any, NamedTuple

from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaError, from_native
from kprod.confluent.native import NativeProducer
from kprod.confluent.options import Settings
from kprod.confluent.statistics import statistics
from kprod.errors import KprodError
from kprod.producer import KafkaProducer
from kprod.version import VERSION
from kprod_ext.confluent import DeliveryReports

monotonic = SystemClock.monotonic

LONG = 10.0**9
SUPPRESSED = 30.0
"""Seconds for which a broker's error is told once."""
REMEMBERED = 1000
"""Brokers whose latest error is known."""


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
        self._told: dict[str, tuple[KafkaError, float]] = {}  # by broker; the latest, and when
        self._told_all_down_after: int | None = None  # how many connections

    def listen_to(self, native: NativeProducer) -> None:
        """Hear of what the callbacks that are there ask for."""
        if self._settings.error_cb is not None:
            native.metadata.on_trouble = partial(self._heard_of_trouble, weakref.ref(native))
        if self._settings.throttle_cb is not None:
            native.metadata.on_throttle = self._heard_of_throttling
        if self._settings.tokens is not None:
            self._settings.tokens.keep_fresh(self._tell)

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

    def _heard_of_trouble(
        self, producer: weakref.ref[NativeProducer], broker: str, error: KprodError
    ) -> None:
        self._tell_once(broker, from_native(error))
        native = producer()
        connections = None if native is None else native.no_broker_since
        if native is not None and connections not in (None, self._told_all_down_after):
            self._told_all_down_after = connections
            brokers = len(native.cluster.brokers) or len(native.config.bootstrap_servers)
            words = f"{brokers}/{brokers} brokers are down"
            self._tell(KafkaError(KafkaError._ALL_BROKERS_DOWN, words))

    def _tell_once(self, broker: str, error: KafkaError) -> None:
        """As librdkafka: the same error of a broker again only after a while."""
        now = monotonic()
        latest, at = self._told.get(broker, (None, 0.0))
        if latest is None or latest.str() != error.str() or now - at >= SUPPRESSED:
            if len(self._told) >= REMEMBERED:
                self._told.clear()
            self._told[broker] = error, now
            self._tell(error)

    def _tell(self, error: KafkaError) -> None:
        if self._settings.error_cb is not None:
            self._reports.call_soon(partial(self._settings.error_cb, error))

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


def forwarding(settings: Settings, client_id: str) -> logging.Handler | None:
    """Let the application's logger, if there is one, have what kprod logs of this producer.

    Until the handler is removed. ``debug`` begins with a line of its own, as librdkafka does; more
    comes when the logger kprod lets it pass: its level is for all producers, so it is not set here.
    """
    if settings.logger is None:
        return None
    if settings.debug:
        text = "INIT [%s] kprod %s (debug %s; details: set the level of the logger kprod to DEBUG)"
        settings.logger.log(logging.DEBUG, text, client_id, VERSION, settings.debug)
    handler = _Forwarded(settings.logger, client_id)
    logging.getLogger("kprod").addHandler(handler)
    return handler
