"""The result of a batch, and how threads, tasks and callbacks wait for it.

One call into an asyncio event loop passes the results of many batches to its tasks.
"""

from __future__ import annotations

import copy
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from kprod.buffer.callbacks import Callbacks
from kprod.clock import SystemClock
from kprod.errors import (
    IllegalStateError,
    InvalidRecordError,
    KprodError,
    RecordTypeError,
    still_being_sent,
)
from kprod.latch import Latch
from kprod.quantities import in_seconds
from kprod.types import RecordMetadata
from kprod_ext import generation
from kprod_ext.futures import BatchOutcome, FutureRecordMetadata

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

Wait: TypeAlias = Callable[[Latch, float | None, bool], bool]
"""Waits at most that many seconds (None: no limit) for a latch, and returns whether it is open. If
the last argument is True, it also wakes the sender."""

NO_OFFSET = -1
NO_TIMESTAMP = -1
FOREVER = 10.0**9
"""A number of seconds that is longer than any process lives."""
COROUTINE = 0x80 | 0x200
"""Code flags of an ``async def`` without and with ``yield`` (see the module ``inspect``)."""

monotonic = SystemClock.monotonic

PROCESS = generation()
"""The generation of this process. A forked child has another one, and a batch in it may belong to
the parent."""


class BatchDelivery(BatchOutcome):
    """The result of one batch, and how to wait for it (Kafka's ``ProduceRequestResult``).

    Thread-safe. If ``callbacks`` is None, functions given to ``on_done`` run in the thread that
    sets the result.
    """

    __slots__ = ()

    metadata_type = RecordMetadata
    callbacks_type = Callbacks

    def fail_each(self, errors: Sequence[tuple[int, KprodError]]) -> bool:
        """Fail all records of the batch, not all with the same error.

        ``errors`` has pairs (index, error), the first with the index 0. An error applies to the
        records from its index up to the next one. Returns False if the batch already had a result.
        """
        parts: list[tuple[int, BatchDelivery]] = []
        for first, error in errors:
            part = BatchDelivery(self.tp, self.expedite, self.callbacks)
            part.fail(error)
            parts.append((first, part))
        return self.end_as(tuple(parts))

    def pieces(self, first: int, count: int) -> Iterator[tuple[BatchDelivery, int, int]]:
        """The deliveries with the results of ``count`` records from index ``first`` on, in order.

        Each item is a delivery, an index in it, and the number of records from that index on.
        """
        if not self.is_split:
            yield self, first, count
            return
        ends = [start for start, _ in self.parts[1:]] + [first + count]
        for (start, part), end in zip(self.parts, ends, strict=True):
            low, high = max(first, start), min(first + count, end)
            if low < high:
                yield from part.pieces(low - start, high - low)

    def raise_error(self) -> NoReturn:
        """Raise a copy of the batch's error. The error itself is never raised.

        All records of the batch share the error. If it were raised, its traceback would refer to
        the frames that it passed, the frames to the future, and the future to the error. The
        garbage collector cannot free this cycle, because it does not know futures.
        """
        raise copy.copy(self.error or AssertionError("the batch has not failed"))

    # Waiting --------------------------------------------------------------------------------------

    def wait(self, timeout: float | None) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit); return whether the batch has a result.

        Raises IllegalStateError inside a callback, unless there is a result or ``timeout`` is 0.
        """
        self.is_watched = True
        return self.done or self.wait_until_notified(timeout) or self.done

    def wait_until_notified(self, timeout: float | None) -> bool:
        """Like ``wait``, and until all ``on_done`` callbacks are queued for their thread."""
        if timeout != 0 and self.callbacks.ident == threading.get_ident():
            raise waits_in_callback()
        latched = self.latch(Latch())
        if latched is None:
            return True
        ended, wait_for = latched
        if wait_for is None:
            self.expedite()
            return bool(ended.wait(timeout))
        first = not (self.done or self.awaited)
        self.awaited = self.awaited or first
        return bool(wait_for(ended, timeout, first))

    def wait_until_called_back(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until the callbacks of ``on_done`` have returned."""
        if self.callbacks.is_current:
            return True
        deadline = monotonic() + timeout
        notified = self.wait_until_notified(timeout)
        return notified and self.callbacks.drain(max(0.0, deadline - monotonic()))

    def wait_in_loop(self) -> Generator[Any, None, None]:
        """Wait in a task of the running asyncio loop until the batch has a result.

        Raises IllegalStateError if no loop runs, inside a callback, and in a forked child.
        """
        if self.callbacks.ident == threading.get_ident():
            raise waits_in_callback()
        self.is_watched = True
        if generation() != PROCESS:
            self._refuse_in_child()
        loop = running_loop()
        made = WaitingTasks(loop)
        waiting = self.join(loop, made)
        if waiting is None:
            return
        if waiting is made:
            # Soon, not now: the batch shall take the records that other tasks are about to send.
            loop.call_soon(self.expedite)
        # The batch may end now, but the loop hands its outcome over: not before this task waits.
        yield from waiting.wait()

    def wait_for_record(self, index: int, timeout: float | None) -> None:
        """Wait for the result of one record: see ``FutureRecordMetadata.get``."""
        if timeout is not None and not (type(timeout) in NUMBERS and timeout >= 0):
            check_timeout(timeout)
        outcome, _ = self.locate(index)
        if not outcome.done:
            outcome.is_watched = True
            outcome.wait_until_notified(timeout)
            outcome, _ = self.locate(index)  # it may have been split meanwhile
            if not outcome.done:
                raise still_being_sent(
                    f"no outcome for a record of {self.tp} after {in_seconds(timeout or 0)};"
                    " it is still being sent"
                )
        if self.has_listeners and timeout != 0:
            self.wait_until_called_back(FOREVER if timeout is None else timeout)

    def await_record(self, future: FutureRecordMetadata) -> Generator[Any, None, RecordMetadata]:
        """Wait for the result of one record in a task: see ``FutureRecordMetadata.__await__``."""
        while not future.is_done:
            outcome, _ = self.locate(future.index)
            yield from outcome.wait_in_loop()
        stored = future.value
        if stored is None:
            outcome, _ = self.locate(future.index)
            outcome.raise_error()
        return stored

    def _refuse_in_child(self) -> None:
        """Raise, as a thread's wait does, if the batch belongs to the parent of this process."""
        latched = self.latch(Latch())
        if latched is not None and latched[1] is not None:
            ended, wait_for = latched
            wait_for(ended, 0, False)

    # Callbacks of a record ------------------------------------------------------------------------

    def call_back(
        self,
        future: FutureRecordMetadata,
        fn: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        stored: bool = False,
        failed: bool = False,
    ) -> None:
        """Call ``fn(*args, outcome, **kwargs)`` once the record is stored or has failed."""
        notify = partial(_notify, future, _callable(fn), args, kwargs, stored, failed)
        self.on_done(notify, future.index, failed)

    def call_with(
        self, future: FutureRecordMetadata, fn: Callable[[FutureRecordMetadata], object]
    ) -> None:
        """Call ``fn(future)`` once it has an outcome."""
        self.on_done(partial(_call_safely, _callable(fn), (future,), {}), future.index)


def _notify(
    future: FutureRecordMetadata,
    fn: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    stored: bool,
    failed: bool,
) -> None:
    error = future.exception
    if stored and error is None:
        _call_safely(fn, (*args, future.value), kwargs)
    if failed and error is not None:
        _call_safely(fn, (*args, error), kwargs)


def _call_safely(fn: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run an application's callback; log any exception that it raises."""
    try:
        fn(*args, **kwargs)
    except BaseException:
        log.exception("the delivery callback %r failed", fn)


def waits_in_callback() -> IllegalStateError:
    """The error for waiting inside a callback."""
    return IllegalStateError(
        "a delivery callback must not wait for an outcome, for all other callbacks would wait"
        " with it: add a callback to that record's future instead"
    )


NUMBERS = int, float


def check_timeout(timeout: Any) -> None:
    """Raise RecordTypeError or InvalidRecordError for an invalid timeout of ``get``."""
    if isinstance(timeout, bool) or not isinstance(timeout, NUMBERS):
        raise RecordTypeError(f"get: timeout must be seconds or None, got {timeout!r}")
    if not timeout >= 0:
        raise InvalidRecordError(f"get: timeout must be seconds from 0 on, got {timeout!r}")


def _callable(fn: Any) -> Any:
    """Return ``fn`` if it can be used as a callback. Raises RecordTypeError if not."""
    if not callable(fn):
        raise RecordTypeError(f"a delivery callback must be callable, got {fn!r}")
    if getattr(getattr(fn, "__code__", None), "co_flags", 0) & COROUTINE:
        raise RecordTypeError(
            f"a delivery callback must not be a coroutine function, which nobody would await:"
            f" {fn!r}; await the future instead, or pass a function that schedules the coroutine"
        )
    return fn


SLICE = 256
"""Waiters that are woken in one iteration of the loop. Waking a task takes some microseconds, so an
iteration takes no more than some milliseconds, however many records a batch holds."""


class Slices:
    """The work for one loop: at most ``SLICE`` steps in each iteration of the loop. Thread-safe.

    Work is an iterator that does one step whenever it is asked for the next item. Any thread may
    add work; only the loop's thread does it. There is no lock, because the garbage collector may
    interrupt a thread that adds work, and may itself add work.
    """

    def __init__(self) -> None:
        self._work: deque[Iterator[object]] = deque()
        self._scheduled = False

    def put(self, loop: asyncio.AbstractEventLoop, work: Iterator[object]) -> None:
        """Queue ``work`` after earlier work; if the loop is closed, drop it."""
        self._work.append(work)
        # First append, then set the flag: a run without work clears the flag, then checks again.
        if self._scheduled:
            return
        try:
            self._schedule(loop.call_soon_threadsafe, loop)
        except RuntimeError:  # the loop is closed, and its tasks have ended
            self._work.clear()

    def _schedule(self, call_soon: Callable[..., object], loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = True
        try:
            call_soon(self._turn, loop)
        except BaseException:  # of a signal handler: the next `put` tries it again
            self._scheduled = False
            raise

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            left = SLICE
            while left > 0 and self._work:
                done = sum(1 for _ in islice(self._work[0], left))
                left -= done
                if left > 0:
                    self._work.popleft()
        finally:  # also of a signal handler that raises: the loop may be run once more
            if not self._work:
                self._scheduled = False
            if self._work:
                self._schedule(loop.call_soon, loop)


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Slices]
_of_loops = weakref.WeakKeyDictionary()


def in_slices(loop: asyncio.AbstractEventLoop, work: Iterator[object]) -> None:
    """Do ``work`` in the loop, in slices between the loop's other work. Any thread may call it."""
    slices = _of_loops.get(loop)
    if slices is None:  # two threads may make one each: both get their work done
        slices = _of_loops[loop] = Slices()
    slices.put(loop, work)


class WaitingTasks:
    """The tasks of one loop that wait for the same event.

    All methods except ``ring`` must be called in the loop.
    """

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of asking

    def wait(self) -> Generator[Any, None, None]:
        """Wait until ``ring``. Each task has its own waiter: cancelling one affects no other."""
        waiter = self._loop.create_future()
        self._waiting[waiter] = None
        try:
            yield from waiter.__await__()
        finally:
            del self._waiting[waiter]

    def ring(self) -> None:
        """Wake all waiting tasks. Any thread; never waits, never raises."""
        in_slices(self._loop, self._wake())

    def _wake(self) -> Iterator[None]:
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_result(None)
            yield


def running_loop() -> asyncio.AbstractEventLoop:
    """The asyncio loop that runs in this thread. Raises IllegalStateError if there is none."""
    import asyncio  # a caller that awaits has it loaded; `import kprod` need not

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalStateError(
            "await needs a running asyncio event loop; elsewhere, wait with get()"
        ) from None
