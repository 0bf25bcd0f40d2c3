"""How one record is queued, on whatever path it came: written, counted, the sender told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.batch_queue import Appended
from kprod.errors import BufferFullError
from kprod.types import BytesLike, Header, TopicPartition


class HandOver:
    """Appends records that may have to wait for memory. Thread-safe.

    ``wake`` lets the sender look at once, ``look_within`` within some seconds; ``exhausted`` counts
    the records for which there was no memory in time (``buffer-exhausted-total``).
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        wake: Callable[[], None],
        look_within: Callable[[float], None],
        exhausted: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._wake = wake
        self._look_within = look_within
        self._exhausted = exhausted

    def append(
        self,
        tp: TopicPartition,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
        timeout: float,
    ) -> Appended:
        """Write a record into its batch; the sender learns of it as soon as it has to.

        Raises as ``RecordAccumulator.append``.
        """
        appended: Appended | None = None
        try:
            appended = self._accumulator.append(tp, timestamp_ms, key, value, headers, timeout)
            if appended.wake_sender:
                self._wake()
            elif appended.linger is not None:
                self._look_within(appended.linger)
        except BaseException as error:
            if isinstance(error, BufferFullError):
                self._exhausted()
            self._wake()  # a signal handler may have raised when the record was queued already
            if appended is None or not isinstance(error, MemoryError):
                raise
        return appended

    def append_to_open(
        self,
        tp: TopicPartition,
        timestamp_ms: int | None,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Sequence[Header],
    ) -> Appended | None:
        """As ``append``, if the partition has an open batch with room that is not full; else None.

        Nothing is queued then. It waits for nothing.
        """
        appended: Appended | None = None
        queue = self._accumulator.queue(tp)
        self._accumulator.let_in()
        try:
            appended = queue.append_to_open(timestamp_ms, key, value, headers)
            if appended is not None and appended.wake_sender:
                self._accumulator.filled(tp)
                self._wake()
        except BaseException as error:  # as in ``append``
            self._wake()
            if appended is None or not isinstance(error, MemoryError):
                raise
        return appended
