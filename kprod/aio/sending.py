"""Queueing a record that needs nothing to be waited for: the compiled part of the asyncio faces"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from kprod.aio.sent_record import LONGEST, LOOK, SentRecord, Settling, sent
from kprod.aio.turns import Turns
from kprod.buffer.future import FutureRecordMetadata
from kprod.clock import SystemClock
from kprod.errors import KprodTimeoutError, PartitionError
from kprod.producer import KafkaProducer
from kprod.types import RecordMetadata

REMEMBERED = 64
"""One record of so many is remembered, to wait for the memory of its batch."""

NOTHING: tuple[Any, Any] = (None, None)
"""No record that waits; known by its identity."""
_END = object()

monotonic = SystemClock.monotonic
running_loop = asyncio.get_running_loop


class Sending:
    """What is done with each record; the rest is in its subclass. For the tasks of one loop.

    ``settling`` makes the loop's part of waiting for outcomes, anew for another loop.
    """

    __slots__ = (
        "_make_settling",
        "_queued",
        "_send",
        "_settling",
        "_turns",
        "_under_way",
        "native",
    )

    def __init__(
        self,
        native: KafkaProducer,
        settling: Callable[[asyncio.AbstractEventLoop], Settling],
    ) -> None:
        self.native = native
        self._send = native.send
        self._queued = 0
        self._turns = Turns()
        self._under_way: deque[FutureRecordMetadata] = deque()  # the oldest first
        self._make_settling = settling
        self._settling: Settling | None = None

    def send_at_once(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SentRecord | None:
        """As ``put_at_once``, with a future for the tasks of this loop."""
        native = self.put_at_once(topic, value, key, headers, partition, timestamp_ms)
        return None if native is None else self.sent(native)

    def put_at_once(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata | None:
        """Queue a record if nothing has to be waited for; else None, and ``put`` is to be awaited.

        Raises what ``KafkaProducer.send`` raises for a bad argument.
        """
        if not self._turns.admit():
            return None
        return self._queue(topic, value, key, headers, partition, timestamp_ms)

    def put_until_waiting(
        self, topic: str, values: Iterator[Any], keys: Iterator[Any] | None, queued: list[Any]
    ) -> tuple[Any, Any] | None:
        """Queue records until one turn of the loop has queued enough, or something is waited for.

        None when there are no more values; ``NOTHING`` before the next turn; else the value and the
        key that ``put`` is to be awaited for. Raises ValueError when there are fewer keys.
        """
        turns = self._turns
        while turns.admit():
            value = next(values, _END)
            if value is _END:
                return None
            key = None if keys is None else next(keys, _END)
            if key is _END:
                raise ValueError(f"there are {len(queued)} keys, and more values")
            native = self._queue(topic, value, key, None, None, None)
            if native is None:
                return value, key
            queued.append(native)
        return NOTHING

    def take_outcomes(self, queued: list[Any], stored: list[RecordMetadata]) -> None:
        """Add the outcomes that are there, in order, as many as a turn of the loop has time for.

        Raises why a record failed.
        """
        ends_at, at = monotonic() + LONGEST, len(stored)
        while at < len(queued):
            native = queued[at]
            delivery = native.delivery
            if not delivery.done:
                break
            stored.append(native.get(0))
            at += 1
            if at % LOOK == 0 and monotonic() >= ends_at:
                break

    def sent(self, native: FutureRecordMetadata) -> SentRecord:
        """The future of a queued record for the tasks of the running loop."""
        loop = running_loop()
        settling = self._settling
        if settling is None or settling.loop is not loop:
            settling = self._settling = self._make_settling(loop)
        return sent(settling, native)

    def _queue(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> FutureRecordMetadata | None:
        """Queue a record if nothing has to be waited for; else None, and this turn is over."""
        native = None
        try:
            native = self._send(topic, value, key, headers, partition, timestamp_ms)
        except (KprodTimeoutError, PartitionError):
            # It has woken the sender: as that is a system call, another thread may run meanwhile
            # for as long as the interpreter lets it, 5 ms.
            self._turns.spend()
        if native is None:
            return None
        self._queued += 1
        if self._queued % REMEMBERED == 0:
            self._remember(native)
        return native

    def _remember(self, native: FutureRecordMetadata) -> None:
        under_way = self._under_way
        while under_way and under_way[0].is_done:
            under_way.popleft()
        under_way.append(native)
