"""The outcome of a batch, settled once for all its records (Kafka's ``ProduceRequestResult``)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from kprod.buffer.awaiting import WaitingTasks, running_loop
from kprod.buffer.callbacks import Callback, Callbacks
from kprod.clock import SystemClock
from kprod.errors import IllegalStateError, KprodError
from kprod.latch import Latch
from kprod.types import TopicPartition
from kprod_ext.futures import track, untrack
from kprod_ext.guarded import Guarded

if TYPE_CHECKING:
    import asyncio

Wait: TypeAlias = Callable[[Latch, float | None, bool], bool]
"""Waits at most so many seconds (None: without limit) for a latch; True when it is open. Told True,
it also sees to it that the sender looks at once."""

NO_OFFSET = -1
NO_TIMESTAMP = -1

monotonic = SystemClock.monotonic


def _nothing() -> None:
    """What is left to hurry when a batch has ended."""


class BatchDelivery(Guarded):
    """The outcome of one batch: a base offset or an error, settled exactly once. Thread-safe.

    ``base_offset`` is -1 when the broker did not tell it; ``append_time`` is the broker's
    timestamp in ms when the topic uses LogAppendTime, else -1. ``awaited`` turns True, and
    ``hurry`` is called, when somebody starts to wait: the batch's linger has no purpose any more.
    ``is_watched``: somebody waits or has asked to be told of errors: none is lost in silence.
    ``has_listeners``: somebody has asked to be told of whatever it will be.
    ``callbacks`` runs what was asked for with ``on_done``; None: the thread that settles does.
    ``wait_for`` is how threads wait; None: they do nothing meanwhile. ``is_split``: the records'
    outcomes are to be found elsewhere, in ``parts``: ``locate`` says where.

    Everything else may be read without a lock once ``done`` or ``is_split`` says that it is there.

    The garbage collector sees a delivery only when it refers to more than what every batch has in
    common: an error, whose traceback may lead back here, somebody to tell, or parts.
    """

    __slots__ = (
        "_hurry",
        "_latch",
        "_tasks",
        "_telling",
        "_told",
        "_waiters",
        "_whole",
        "append_time",
        "awaited",
        "base_offset",
        "callbacks",
        "done",
        "error",
        "has_listeners",
        "is_split",
        "is_watched",
        "parts",
        "tp",
        "wait_for",
    )

    def __init__(
        self,
        tp: TopicPartition,
        hurry: Callable[[], None],
        callbacks: Callbacks | None = None,
        wait_for: Wait | None = None,
    ) -> None:
        self.tp = tp
        self.done = False
        self.awaited = False
        self.is_watched = False
        self.has_listeners = False
        self.base_offset = NO_OFFSET
        self.append_time = NO_TIMESTAMP
        self.error: KprodError | None = None
        self.callbacks = callbacks or Callbacks()
        self.wait_for = wait_for
        self._hurry = hurry
        # Its lock guards the four below, and settling.
        self._waiters: list[tuple[int, Callback]] | None = None  # made for the first
        self._tasks: dict[asyncio.AbstractEventLoop, WaitingTasks] | None = None
        self._told = False  # the waiters were handed over
        self._telling = False  # some thread is about to
        self._latch: Latch | None = None  # opens then; made for the first thread that waits
        self.is_split = False
        self.parts: tuple[tuple[int, BatchDelivery], ...] = ()
        self._whole: BatchDelivery | None = None
        untrack(self)

    def succeed(self, base_offset: int, append_time: int) -> bool:
        """The batch is stored. False when it had already ended."""
        return self._settle(base_offset, append_time, None)

    def fail(self, error: KprodError) -> bool:
        """The batch ended in ``error``. False when it had already ended."""
        return self._settle(NO_OFFSET, NO_TIMESTAMP, error)

    def fail_each(self, errors: Sequence[tuple[int, KprodError]]) -> bool:
        """The batch ended in several errors: (index of the first record it is for, error), from 0.

        False when it had already ended.
        """
        parts: list[tuple[int, BatchDelivery]] = []
        for first, error in errors:
            part = BatchDelivery(self.tp, self._hurry, self.callbacks)
            part.fail(error)
            parts.append((first, part))
        return self._settle(NO_OFFSET, NO_TIMESTAMP, None, tuple(parts))

    def _settle(
        self,
        base_offset: int,
        append_time: int,
        error: KprodError | None,
        parts: tuple[tuple[int, BatchDelivery], ...] = (),
    ) -> bool:
        self.take_lock()
        try:
            settles = not self.done
            if not settles and (self._told or self._telling):
                return False
            # Else an earlier call was left by an exception, say for want of memory: go on with it.
            if settles:
                if parts or error is not None:
                    track(self)
                if parts:
                    self.parts = parts  # before anybody is told: they look there
                    self.is_split = True
                self.base_offset, self.append_time, self.error = base_offset, append_time, error
                self.done = True
            if self._waiters is None and self._tasks is None:
                self._end_telling()
            self._telling = not self._told
        finally:
            self.release_lock()
        if self._telling:
            try:
                self._tell_all()
            finally:
                self._telling = False
        if self._whole is not None:
            self._whole._end_with_parts()
        return settles

    def _tell_all(self) -> None:
        if self._tasks is not None:  # nobody adds to them, for the batch is done
            for waiting in self._tasks.values():
                waiting.ring()
            self._tasks = None
        while not self._told:
            self._tell_waiters()

    def _tell_waiters(self) -> None:
        """Tell those not told yet, in the order of their records. Without any, that was all."""
        taken: list[Callback] = []
        self.take_lock()
        try:
            if self._waiters is None:
                self._end_telling()
                return
            self._waiters.sort(key=itemgetter(0))
            for _, tell in self._waiters:
                taken.append(tell)
            self._waiters = None  # last: what fails before this is done again
        finally:
            self.release_lock()
        self.callbacks.put(taken)

    def _end_telling(self) -> None:
        """All that waited have been told; ``_lock`` is held."""
        if self._latch is not None:
            self._latch.open()
        self._told = True
        # A future that is kept must not keep the producer's memory with it. Nor would the garbage
        # collector, which does not see futures, ever find a ring through one.
        self._hurry, self.wait_for = _nothing, None

    def split_into(self, parts: Sequence[tuple[int, BatchDelivery]]) -> None:
        """The batch goes on as smaller ones: (index of its first record, new delivery), in order.

        This delivery ends with the last of them; a record's own outcome is where ``locate`` says.
        Thread: the sender's only.
        """
        self.parts = tuple(parts)
        track(self)
        for _, part in self.parts:
            part._whole = self
            track(part)
        self.is_split = True

    def _end_with_parts(self) -> None:
        if all(part.done for _, part in self.parts):
            self._settle(NO_OFFSET, NO_TIMESTAMP, None)

    def locate(self, index: int) -> tuple[BatchDelivery, int]:
        """The delivery that tells the outcome of the record at ``index``, and its index there."""
        if self.is_split:
            for first, part in reversed(self.parts):
                if index >= first:
                    return part.locate(index - first)
        return self, index

    def pieces(self, first: int, count: int) -> Iterator[tuple[BatchDelivery, int, int]]:
        """Who tells the outcomes of ``count`` records from index ``first`` on, in order.

        Each piece is a delivery, the index of its first such record there, and how many they are.
        """
        if not self.is_split:
            yield self, first, count
            return
        ends = [start for start, _ in self.parts[1:]] + [first + count]
        for (start, part), end in zip(self.parts, ends, strict=True):
            low, high = max(first, start), min(first + count, end)
            if low < high:
                yield from part.pieces(low - start, high - low)

    def on_done(self, tell: Callback, index: int = 0, hears_errors: bool = True) -> None:
        """Put ``tell`` to the callbacks once the batch has ended; now, if it has.

        What was asked before the end is told in the order of ``index``, that of the record.
        """
        self.has_listeners = True
        self.is_watched = self.is_watched or hears_errors
        self.take_lock()
        try:
            if not self._told:
                if self._waiters is None:
                    self._waiters = []
                    track(self)
                self._waiters.append((index, tell))
                return
        finally:
            self.release_lock()
        self.callbacks.put([tell])

    def hasten(self) -> None:
        """Somebody is about to wait: the batch need not linger. Never waits."""
        if not (self.done or self.awaited):
            self.awaited = True
            self.take_lock()
            try:
                hurry = self._hurry
            finally:
                self.release_lock()
            hurry()

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: without limit); True once the batch has ended.

        Raises IllegalStateError inside a callback, unless the batch has ended or timeout is 0.
        """
        self.is_watched = True
        return self.done or self.wait_until_told(timeout) or self.done

    def wait_until_heard(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until what ``on_done`` was given before has returned."""
        if self.callbacks.is_current:
            return True
        deadline = monotonic() + timeout
        told = self.wait_until_told(timeout)
        return told and self.callbacks.drain(max(0.0, deadline - monotonic()))

    def wait_until_told(self, timeout: float | None) -> bool:
        """As ``wait``, and until everything ``on_done`` was given has been put to the callbacks."""
        if timeout != 0:
            self._refuse_in_callback()
        self.take_lock()
        try:
            if self._told:
                return True
            if self._latch is None:
                self._latch = Latch()
            told, wait_for = self._latch, self.wait_for
        finally:
            self.release_lock()
        if wait_for is None:
            self.hasten()
            return told.wait(timeout)
        first = not (self.done or self.awaited)
        self.awaited = self.awaited or first
        return wait_for(told, timeout, first)

    def wait_in_loop(self) -> Generator[Any, None, None]:
        """Wait in a task of the running asyncio loop until the batch has ended.

        Raises IllegalStateError without such a loop, and inside a callback.
        """
        self._refuse_in_callback()
        self.is_watched = True
        loop = running_loop()
        self.take_lock()
        try:
            if self.done:
                return
            if self._tasks is None:
                self._tasks = {}
                track(self)
            waiting = self._tasks.get(loop)
            if waiting is None:
                waiting = self._tasks[loop] = WaitingTasks(loop)
                # Soon, not now: what other tasks are about to send shall be in the batch.
                loop.call_soon(self.hasten)
        finally:
            self.release_lock()
        # It may end now, but is told in the loop: not before this task waits.
        yield from waiting.wait()

    def _refuse_in_callback(self) -> None:
        if self.callbacks.is_current:
            raise IllegalStateError(
                "a delivery callback must not wait for an outcome, for all other callbacks would"
                " wait with it: add a callback to that record's future instead"
            )
