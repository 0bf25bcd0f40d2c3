"""The outcome of a batch, settled once for all its records (Kafka's ``ProduceRequestResult``)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kprod.errors import KprodError
from kprod.types import TopicPartition

NO_OFFSET = -1
NO_TIMESTAMP = -1


class BatchDelivery:
    """The outcome of one batch: a base offset or an error, settled exactly once. Thread-safe.

    ``base_offset`` is -1 when the broker did not tell it; ``append_time`` is the broker's
    timestamp in ms when the topic uses LogAppendTime, else -1. ``awaited`` turns True, and
    ``hurry`` is called, when somebody starts to wait: the batch's linger has no purpose any more.
    """

    __slots__ = (
        "_changed",
        "_hurry",
        "_parts",
        "_waiters",
        "append_time",
        "awaited",
        "base_offset",
        "done",
        "error",
        "tp",
    )

    def __init__(self, tp: TopicPartition, hurry: Callable[[], None]) -> None:
        self.tp = tp
        self.done = False
        self.awaited = False
        self._hurry = hurry
        self.base_offset = NO_OFFSET
        self.append_time = NO_TIMESTAMP
        self.error: KprodError | None = None
        self._changed = threading.Condition(threading.Lock())  # guards _waiters and settling
        self._waiters: list[Callable[[], None]] = []
        self._parts: tuple[tuple[int, BatchDelivery], ...] = ()

    def succeed(self, base_offset: int, append_time: int) -> bool:
        """The batch is stored. False when it had already ended."""
        return self._settle(base_offset, append_time, None)

    def fail(self, error: KprodError) -> bool:
        """The batch ended in ``error``. False when it had already ended."""
        return self._settle(NO_OFFSET, NO_TIMESTAMP, error)

    def _settle(self, base_offset: int, append_time: int, error: KprodError | None) -> bool:
        with self._changed:
            if self.done:
                return False
            self.base_offset, self.append_time, self.error = base_offset, append_time, error
            self.done = True
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        for tell in waiters:
            tell()
        return True

    def split_into(self, parts: Sequence[tuple[int, BatchDelivery]]) -> None:
        """The batch goes on as smaller ones: (index of its first record, new delivery), in order.

        This delivery ends with the last of them; a record's own outcome is where ``locate`` says.
        Thread: the sender's only.
        """
        self._parts = tuple(parts)
        for _, part in self._parts:
            part.on_done(self._end_with_parts)

    def _end_with_parts(self) -> None:
        if all(part.done for _, part in self._parts):
            self._settle(NO_OFFSET, NO_TIMESTAMP, None)

    def locate(self, index: int) -> tuple[BatchDelivery, int]:
        """The delivery that tells the outcome of the record at ``index``, and its index there."""
        for first, part in reversed(self._parts):
            if index >= first:
                return part.locate(index - first)
        return self, index

    def on_done(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once the batch has ended: at once, in this thread, if it has already."""
        with self._changed:
            if not self.done:
                self._waiters.append(tell)
                return
        tell()

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: without limit); True once the batch has ended."""
        if self.done:
            return True
        if not self.awaited:
            self.awaited = True
            self._hurry()
        with self._changed:
            return self._changed.wait_for(lambda: self.done, timeout)
