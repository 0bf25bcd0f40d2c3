"""Statistics, failed connections and throttling: events that poll and flush also serve."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from kprod.clock import SystemClock
from kprod.cluster.metadata import MetadataListener
from kprod.confluent.errors import KafkaError, from_native
from kprod.confluent.native import NativeProducer
from kprod.confluent.options import Settings
from kprod.errors import KprodError
from kprod.producer import KafkaProducer
from kprod.sender.engine import LONGEST_WAIT
from kprod.version import VERSION
from kprod_ext.confluent import DeliveryReports

monotonic = SystemClock.monotonic

SUPPRESSED = 30.0
"""Seconds in which the same error of a broker is reported once."""
REMEMBERED = 1000
"""Number of brokers whose latest error is remembered."""


class ThrottleEvent(NamedTuple):
    """A broker throttled the client; ``throttle_time`` is in seconds."""

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return (
            f"{self.broker_name}/{self.broker_id} throttled for {self.throttle_time * 1000:.0f} ms"
        )


class Events:
    """Collects events in the sender thread; ``poll`` passes them to the application."""

    def __init__(self, settings: Settings, reports: DeliveryReports) -> None:
        self._settings = settings
        self._reports = reports
        self._began = self._statistics_at = monotonic()
        self._reported: dict[str, tuple[KafkaError, float]] = {}  # latest error and time, by broker
        self._all_down_at: int | None = None  # count of connections when it was last reported

    def listen_to(self, native: NativeProducer) -> None:
        """Register for the events that the application has callbacks for."""
        if self._settings.error_cb is not None:
            on_failed = partial(self._on_broker_failed, weakref.ref(native))
            native.listen(MetadataListener(broker_failed=on_failed))
        if self._settings.throttle_cb is not None:
            native.listen(MetadataListener(throttled=self._on_throttled))
        if self._settings.tokens is not None:
            self._settings.tokens.keep_fresh(self._report)

    def begin_in_child(self) -> None:
        """Forget what was reported of the connections of the parent process."""
        self._reported, self._all_down_at = {}, None

    def until_statistics(self) -> float:
        """Seconds until ``stats_cb`` is due."""
        interval = self._settings.statistics_interval
        if not interval or self._settings.stats_cb is None:
            return LONGEST_WAIT
        return max(0.0, self._statistics_at + interval - monotonic())

    def serve_statistics(self, native: KafkaProducer) -> None:
        """Have ``stats_cb`` called if it is due."""
        if self._settings.stats_cb is not None and self.until_statistics() <= 0:
            self._statistics_at = monotonic()
            text = statistics(native, self._reports.waiting, self._began)
            self._reports.call_soon(partial(self._settings.stats_cb, text))

    def _on_broker_failed(
        self, producer: weakref.ref[NativeProducer], broker: str, error: KprodError
    ) -> None:
        self._report_once(broker, from_native(error))
        native = producer()
        connections = None if native is None else native.no_broker_since
        if native is not None and connections not in (None, self._all_down_at):
            self._all_down_at = connections
            brokers = len(native.cluster.brokers) or len(native.config.bootstrap_servers)
            words = f"{brokers}/{brokers} brokers are down"
            self._report(KafkaError(KafkaError._ALL_BROKERS_DOWN, words))

    def _report_once(self, broker: str, error: KafkaError) -> None:
        """Report a broker's error, but the same error only once in a while, as librdkafka does."""
        now = monotonic()
        latest, at = self._reported.get(broker, (None, 0.0))
        if latest is None or latest.str() != error.str() or now - at >= SUPPRESSED:
            if len(self._reported) >= REMEMBERED:
                self._reported.clear()
            self._reported[broker] = error, now
            self._report(error)

    def _report(self, error: KafkaError) -> None:
        if self._settings.error_cb is not None:
            self._reports.call_soon(partial(self._settings.error_cb, error))

    def _on_throttled(self, address: str, node_id: int, seconds: float) -> None:
        if self._settings.throttle_cb is not None:
            event = ThrottleEvent(address, node_id, seconds)
            self._reports.call_soon(partial(self._settings.throttle_cb, event))


class _Forwarded(logging.Handler):
    """A handler that passes kprod's log of one producer to a logger of the application."""

    def __init__(self, logger: Any, client_id: str) -> None:
        super().__init__()
        self._logger = logger
        self._client_id = client_id

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith(self._client_id):
            self._logger.log(record.levelno, "%s", text)


def forwarding(settings: Settings, client_id: str) -> logging.Handler | None:
    """Pass kprod's log of this producer to the application's logger, if there is one.

    This lasts until the returned handler is removed. With the option ``debug``, the log begins with
    a line about ``debug``, as in librdkafka. Details appear only if the level of the logger
    ``kprod`` permits them. The level is not changed here, because it applies to all producers.
    """
    if settings.logger is None:
        return None
    if settings.debug:
        text = "INIT [%s] kprod %s (debug %s; details: set the level of the logger kprod to DEBUG)"
        settings.logger.log(logging.DEBUG, text, client_id, VERSION, settings.debug)
    handler = _Forwarded(settings.logger, client_id)
    logging.getLogger("kprod").addHandler(handler)
    return handler


def statistics(native: KafkaProducer, waiting: int, began: float) -> str:
    """A JSON object as in librdkafka's STATISTICS.md, without values that kprod does not count.

    ``began`` is the time at which the client was made, in seconds on the monotonic clock.
    """
    metrics, clock = native.metrics(), SystemClock()
    own, snapshot = metrics["producer-metrics"], native.metadata.snapshot
    result: dict[str, Any] = {
        "name": f"{native.config.client_id}#producer",
        "client_id": native.config.client_id,
        "type": "producer",
        "ts": int(clock.monotonic() * 1_000_000),
        "time": clock.wall_ms() // 1000,
        "age": int((clock.monotonic() - began) * 1_000_000),
        "replyq": 0,
        "msg_cnt": waiting,
        "msg_size": int(own["buffer-total-bytes"] - own["buffer-available-bytes"]),
        "msg_size_max": int(own["buffer-total-bytes"]),
        "tx": int(own["request-total"]),
        "tx_bytes": int(own["outgoing-byte-total"]),
        "rx_bytes": int(own["incoming-byte-total"]),
        "txmsgs": int(own["record-send-total"]),
        "txmsg_bytes": int(own["byte-total"]),
        "metadata_cache_cnt": len(snapshot.topics),
        "brokers": {},
        "topics": {},
    }
    for broker in snapshot.brokers.values():
        name = f"{broker.host}:{broker.port}/{broker.node_id}"
        node = metrics.get(f"producer-node-metrics.node-{broker.node_id}", {})
        result["brokers"][name] = _broker(name, broker.node_id, node)
    for name, topic in snapshot.topics.items():
        partitions = {
            str(p.partition): {"partition": p.partition, "leader": p.leader_id}
            for p in topic.partitions
        }
        result["topics"][name] = {"topic": name, "partitions": partitions}
    return json.dumps(result)


def _broker(name: str, node_id: int, node: Mapping[str, float]) -> dict[str, Any]:
    mean = node.get("request-latency-avg", 0.0)
    most = node.get("request-latency-max", 0.0)
    return {
        "name": name,
        "nodeid": node_id,
        "source": "learned",
        "state": "UP" if node else "INIT",
        "tx": int(node.get("request-total", 0)),
        "txbytes": int(node.get("outgoing-byte-total", 0)),
        "rxbytes": int(node.get("incoming-byte-total", 0)),
        "rtt": {"avg": int(1000 * mean), "max": int(1000 * most)},
    }
