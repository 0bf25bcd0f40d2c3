"""produce and poll as far as they run once per record: the compiled part of the confluent face"""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaError, raise_unless_unplaced
from kprod.confluent.native import NativeProducer
from kprod.confluent.options import Settings
from kprod.confluent.reports import DeliveryReports, OnDelivery
from kprod.confluent.unplaced import Unplaced, UnplacedRecords, check
from kprod.errors import KprodError
from kprod.intake.key_hash import CRC32

monotonic = SystemClock.monotonic

CLOSED = "Producer has been closed"
by_crc32 = CRC32.partition


class Producing:
    """What a Producer does with each record; the rest is in its subclass."""

    __slots__ = (
        "_counts",
        "_keys_by_crc32",
        "_most_messages",
        "_native",
        "_on_delivery",
        "_reports",
        "_tells_statistics",
        "_unplaced",
        "_unplaced_topics",
    )

    def __init__(self, settings: Settings) -> None:
        self._native: NativeProducer | None = None  # until it is made, and after close
        self._reports = DeliveryReports(settings.only_errors)
        self._on_delivery = settings.on_delivery
        self._most_messages = settings.most_messages
        self._keys_by_crc32 = settings.keys_by_crc32
        self._counts: tuple[Any, dict[str, int]] = (None, {})  # partitions of topics, in a snapshot
        self._tells_statistics = settings.stats_cb is not None

    def _use(self, native: NativeProducer, unplaced: UnplacedRecords) -> None:
        """From now on."""
        self._native = native
        self._unplaced = unplaced
        self._unplaced_topics = unplaced.queues

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
        callback: OnDelivery | None = None,
    ) -> None:
        """Queue one record. ``on_delivery(error, message)`` is called by ``poll`` or ``flush``.

        Raises BufferError when ``queue.buffering.max.messages`` wait for their report or memory is
        used up, TypeError, KafkaException, and RuntimeError after ``close``.
        """
        native = self._native
        if native is None:
            raise RuntimeError(CLOSED)
        reports = self._reports
        if reports.waiting >= self._most_messages:
            raise BufferError(KafkaError(KafkaError._QUEUE_FULL).str())
        if type(value) is str:
            value = value.encode()
        if type(key) is str:
            key = key.encode()
        if headers is not None:
            headers = frozen_headers(headers)
        where = partition if partition != -1 else self._partition(native, topic, key)
        stamp = timestamp or None
        began = monotonic()
        report = on_delivery or callback or self._on_delivery
        if not self._unplaced_topics or topic not in self._unplaced_topics:
            future, failure = None, None
            try:
                future = native.send(topic, value, key, headers, where, stamp)
            except KprodError as error:
                failure = error
            if future is not None:
                reports.add(future, report, key, value, headers, began)
                return
            raise_unless_unplaced(failure)
        given = topic, value, key, headers, where, stamp
        record = Unplaced(*given, report, began, copy_context())
        check(record)
        reports.expect(1)
        self._unplaced.add(record)

    def _partition(self, native: NativeProducer, topic: str, key: Any) -> int | None:
        """Where a key belongs, if the face decides and knows the topic; else None."""
        if not key or not self._keys_by_crc32:
            return None
        snapshot = native.metadata.snapshot
        seen, counts = self._counts  # together: another thread may replace them
        if snapshot is not seen:
            counts = {}
            self._counts = snapshot, counts
        count = counts.get(topic)
        if count is None:
            known = snapshot.topic(topic)
            if known is None:
                return None
            count = counts[topic] = len(known)
        return by_crc32(key, count)

    def poll(self, timeout: float | None = -1) -> int:
        """Call back what there is to tell, waiting at most ``timeout`` seconds for the first.

        -1 and None wait for ever. Returns how many callbacks that were; raises what one raises.
        """
        if self._native is None:
            raise RuntimeError(CLOSED)
        if timeout == 0 and not self._tells_statistics:
            # As in most calls of those who poll after every record.
            return self._reports.serve() if self._reports.ready else 0
        return self._wait_and_serve(timeout)

    def _wait_and_serve(self, timeout: float | None) -> int:
        raise NotImplementedError


def frozen_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """As pairs, text as UTF-8. Raises TypeError."""
    if isinstance(headers, tuple) or not isinstance(headers, list | dict):
        raise TypeError("expected list or dict of headers")
    pairs = headers.items() if isinstance(headers, dict) else headers
    made = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("headers are (name, value) tuples")
        name, value = pair
        if not isinstance(name, str) or not isinstance(value, str | bytes | None):
            raise TypeError("the name of a header is a str, its value str, bytes or None")
        made.append((name, value.encode() if isinstance(value, str) else value))
    return made
