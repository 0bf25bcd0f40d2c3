"""Delivery reports: collected by batch while records are on their way, handed out by poll"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from kprod.buffer.delivery import BatchDelivery
from kprod.buffer.future import FutureRecordMetadata
from kprod.clock import SystemClock
from kprod.confluent.errors import KafkaError
from kprod.confluent.message import Message, delivered, queued
from kprod_ext.guarded import Guarded

monotonic = SystemClock.monotonic

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]


class ReportedBatch:
    """The messages of one batch that wait for their report, in order."""

    __slots__ = ("delivery", "ended_at", "messages")

    def __init__(self, delivery: BatchDelivery) -> None:
        self.delivery = delivery
        self.messages: list[Message] = []
        self.ended_at = 0.0  # before: no outcome yet


class DeliveryReports(Guarded):
    """Records are put in by any thread; ``serve`` calls back in the thread that calls it.

    One callback for each batch tells that it has ended, not one for each record. ``waiting`` counts
    the records that have no report yet; ``ready`` is what ``serve`` will call back. ``on_ready`` is
    called, in any thread, when it becomes more.

    Its lock guards ``waiting``, the batches and their messages. Nothing is allocated that the
    garbage collector sees while it is held: a collection may come back here.
    """

    def __init__(self, only_errors: bool = False) -> None:
        self.waiting = 0
        self.only_errors = only_errors
        self.ready: deque[ReportedBatch | Callable[[], object]] = deque()
        self.on_ready: Callable[[], object] | None = None
        self._latest: ReportedBatch | None = None
        self._batches: dict[BatchDelivery, ReportedBatch] = {}
        self._something = threading.Event()

    def add(
        self,
        future: FutureRecordMetadata,
        on_delivery: OnDelivery | None,
        key: Any,
        value: Any,
        headers: Any,
        began: float,
    ) -> None:
        """A record was queued at ``began``."""
        message = queued(future, on_delivery, key, value, headers, began)
        delivery = future.delivery
        batch = self._latest
        if batch is None or batch.delivery is not delivery:
            batch = self._latest = self._batch(delivery)
        self.take_lock()
        try:
            batch.messages.append(message)
            self.waiting += 1
            # The batch may have ended, and been handed out, before.
            ended = batch.ended_at > 0
        finally:
            self.release_lock()
        if ended:
            self._hand_out(batch)

    def _batch(self, delivery: BatchDelivery) -> ReportedBatch:
        batch = self._batches.get(delivery)
        if batch is not None:
            return batch
        made = ReportedBatch(delivery)
        batch = self._batches.setdefault(delivery, made)
        if batch is made:
            delivery.on_done(partial(self._ended, batch))
        return batch

    def _ended(self, batch: ReportedBatch) -> None:
        now = monotonic()
        self.take_lock()
        batch.ended_at = now
        self.release_lock()
        self._batches.pop(batch.delivery, None)
        self._hand_out(batch)

    def _hand_out(self, ready: ReportedBatch | Callable[[], object]) -> None:
        self.ready.append(ready)
        self._something.set()
        if self.on_ready is not None:
            self.on_ready()

    def call_soon(self, event: Callable[[], object]) -> None:
        """Let ``serve`` call this, among the reports."""
        self._hand_out(event)

    def hurry(self) -> None:
        """Somebody waits: no batch need linger any more."""
        for delivery in list(self._batches):
            delivery.hasten()

    def wait(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until there is something to serve."""
        if not self.ready:
            self._something.wait(timeout)

    def serve(self) -> int:
        """Call back what is ready; how many that were. What a callback raises ends it."""
        self._something.clear()
        served = 0
        while self.ready:
            try:
                ready = self.ready.popleft()
            except IndexError:  # another thread was faster
                ready = None
            if ready is None:
                break
            if isinstance(ready, ReportedBatch):
                served += self._serve_batch(ready)
            else:
                ready()
                served += 1
        return served

    def _serve_batch(self, batch: ReportedBatch) -> int:
        fresh: list[Message] = []
        self.take_lock()
        messages, batch.messages = batch.messages, fresh
        self.release_lock()
        served = 0
        try:
            for message in messages:
                served += 1
                on_delivery = delivered(message, batch.ended_at)
                if on_delivery is not None and not (self.only_errors and message._error is None):
                    on_delivery(message._error, message)
        finally:
            self.expect(-served)
            if served < len(messages):
                self._put_back(batch, messages[served:])
        return served

    def _put_back(self, batch: ReportedBatch, messages: list[Message]) -> None:
        """A callback has raised: what comes after it is for the next call."""
        self.take_lock()
        try:
            batch.messages[:0] = messages
        finally:
            self.release_lock()
        self.ready.appendleft(batch)
        self._something.set()

    def expect(self, records: int) -> None:
        """So many more records wait for a report; fewer, if negative."""
        self.take_lock()
        self.waiting += records
        self.release_lock()
