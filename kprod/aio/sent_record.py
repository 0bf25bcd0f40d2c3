"""A record that was sent in an asyncio loop, as a future of that loop; and the loop's part of it

``gather``, ``wait``, ``wait_for`` and a task that awaits see a future of their own kind, by the
attributes asyncio asks for (``asyncio.isfuture``): so they need no task for each record. A record
has its outcome where its batch has it, and nothing is done for one that nobody asked to be told of.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from kprod.aio.loop_waiting import call_soon
from kprod.buffer.delivery import BatchDelivery
from kprod.buffer.future import FutureRecordMetadata
from kprod.clock import SystemClock
from kprod.errors import KprodError
from kprod.types import RecordMetadata
from kprod_ext.loop_future import LoopFuture

monotonic = SystemClock.monotonic

LONGEST = 0.002
"""Seconds of one turn of the loop that callbacks take, and the last one of them in addition."""
LOOK = 16
"""Callbacks between two looks at the clock."""


class Settling:
    """Tells those who wait for records of one loop: all of a batch are one call into the loop.

    ``error`` says what is raised for what ended a record. ``renews``: a wait begins anew after
    ``cancel``, and ends the linger of its batch. ``stored`` makes the result of a record that was
    stored; None: its RecordMetadata. Every method but ``_ended_elsewhere`` in the loop.
    """

    __slots__ = (
        "_batches",
        "_due",
        "_latest",
        "_latest_records",
        "_rests_at",
        "_scheduled",
        "error",
        "loop",
        "renews",
        "stored",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        error: Callable[[KprodError], BaseException] | None = None,
        *,
        renews: bool = False,
        stored: Callable[[FutureRecordMetadata], Any] | None = None,
    ) -> None:
        self.loop = loop
        self.error = error
        self.renews = renews
        self.stored = stored
        self._batches: dict[BatchDelivery, list[SentRecord]] = {}
        self._latest: BatchDelivery | None = None
        self._latest_records: list[SentRecord] = []
        self._due: deque[SentRecord] = deque()
        self._scheduled = False
        self._rests_at = 0.0  # when one that awaits records that are done gives others their turn

    def rests(self) -> bool:
        """Whether records that are done were awaited for so long that other tasks are due.

        One ``await`` of such a record takes no turn of the loop, and a hundred thousand in a row
        would take none either.
        """
        now = monotonic()
        if now < self._rests_at:
            return False
        self._rests_at = now + LONGEST
        return True

    def watch(self, record: SentRecord) -> None:
        """Tell its callbacks once its batch has ended; soon, if it has or is not waited for."""
        delivery = outcome_of(record)
        if record.is_cancelled or delivery.done:
            self._due.append(record)
            self._schedule()
            return
        if delivery is not self._latest:
            self._turn_to(delivery)
        self._latest_records.append(record)

    def _turn_to(self, delivery: BatchDelivery) -> None:
        records = self._batches.get(delivery)
        if records is None:
            records = self._batches[delivery] = []
            if self.renews:
                self._await(delivery)
            else:
                delivery.on_done(partial(self._ended_elsewhere, delivery))
        self._latest, self._latest_records = delivery, records

    def _await(self, delivery: BatchDelivery) -> None:
        """As a task would: the batch need not linger, and no other thread comes between."""
        waiting = delivery.wait_in_loop()
        waiter = next(waiting, None)
        if waiter is None:  # it has ended since
            self.loop.call_soon(self._ended, delivery)
        else:
            waiter.add_done_callback(partial(self._waited, delivery, waiting))

    def _waited(self, delivery: BatchDelivery, waiting: Generator[Any, None, None], _: Any) -> None:
        next(waiting, None)  # lets go of the waiter
        self._ended(delivery)

    def _ended_elsewhere(self, delivery: BatchDelivery) -> None:
        """In the callbacks' thread. In a closed loop nobody waits any more."""
        call_soon(self.loop, partial(self._ended, delivery))

    def _ended(self, delivery: BatchDelivery) -> None:
        records = self._batches.pop(delivery, None)
        if delivery is self._latest:
            self._latest, self._latest_records = None, []
        if records:
            self._due.extend(records)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Tell as many as take ``LONGEST``; the others in the next turn."""
        due, told, ends_at = self._due, 0, monotonic() + LONGEST
        try:
            while due:
                record = due.popleft()
                tell(record)
                told += 1
                if told % LOOK == 0 and monotonic() >= ends_at:
                    break
        finally:
            self._scheduled = False
            if due:
                self._schedule()


class SentRecord(LoopFuture):
    """The outcome of one record, for the tasks of the loop that has sent it: an asyncio future.

    ``await`` it, or give it to ``gather``, ``wait``, ``wait_for`` or ``shield``. ``native`` is the
    future of ``KafkaProducer.send``, for other threads and loops; its names that asyncio's futures
    do not have are found here, too (``get``, ``add_callback``, ``is_done``, ...). Cancelling never
    calls a record back.
    """

    __slots__ = ()

    _settling: Settling

    def __init__(self, settling: Settling, native: FutureRecordMetadata) -> None:
        self.native, self._settling = native, settling
        self._asyncio_future_blocking = self.is_cancelled = False
        self._cancel_message = self._callback = self._context = self._more = None

    # What there is to know ------------------------------------------------------------------------

    def done(self) -> bool:
        """True once there is an outcome, or the waiting for it was cancelled."""
        return self.is_cancelled or outcome_of(self).done

    def cancelled(self) -> bool:
        """True once the waiting was cancelled."""
        return self.is_cancelled

    def exception(self) -> BaseException | None:
        """Why the record failed. Raises InvalidStateError before the outcome, CancelledError."""
        outcome = _settled(self, "Exception is not set.")
        return None if outcome.error is None else _error(self)

    def result(self) -> Any:
        """Where the record was stored; raises why it failed, and what ``exception`` raises."""
        outcome = _settled(self, "Result is not set.")
        if outcome.error is not None:
            raise _error(self)
        stored = self._settling.stored
        return self.native.get(0) if stored is None else stored(self.native)

    def _make_cancelled_error(self) -> Any:
        return _cancelled(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop whose tasks may wait."""
        return self._settling.loop

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What ``isinstance`` is told; programs ask for asyncio's own futures."""
        return asyncio.Future

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._settling.loop

    # Waiting --------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Any]:
        if self.done() and self._settling.rests():
            yield  # as asyncio.sleep(0) does
        if self._settling.renews:
            # By a waiter of its own: cancelling a task ends its wait and no other.
            stored: RecordMetadata = yield from self.native.__await__()
            return stored
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
            if not self.done():
                raise RuntimeError("await wasn't used with future")
        return self.result()

    def __iter__(self) -> Generator[Any, None, Any]:
        return self.__await__()

    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Let the loop call ``fn(self)`` once it is done, soon if it is, as asyncio's futures do.

        ``native.add_done_callback`` calls in the producer's thread for callbacks.
        """
        if context is None:
            context = copy_context()
        if self._callback is not None:
            if self._more is None:
                self._more = []
            self._more.append((fn, context))
            return
        if self.is_cancelled and self._settling.renews:
            self.is_cancelled = False
        self._callback, self._context = fn, context
        self._settling.watch(self)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Do not call ``fn``; how often it was to be called."""
        if self._callback is None:
            return 0
        all_of_them = [(self._callback, self._context), *(self._more or ())]
        left: list[Any] = [pair for pair in all_of_them if pair[0] != fn]
        if not left:
            self._callback = self._context = None
        else:
            self._callback, self._context = left[0]
        self._more = left[1:] or None
        return len(all_of_them) - len(left)

    def cancel(self, msg: Any = None) -> bool:
        """End the waiting, not the sending; False when it is done."""
        if self.done():
            return False
        self.is_cancelled, self._cancel_message = True, msg
        if self._callback is not None:
            self._settling.watch(self)
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.native, name)

    def __repr__(self) -> str:
        state = "cancelled" if self.is_cancelled else repr(self.native)[1:-1]
        return f"<SentRecord {state}>"


def sent(settling: Settling, native: FutureRecordMetadata) -> SentRecord:
    """As ``SentRecord``; the quickest way to make one."""
    made = SentRecord.__new__(SentRecord)
    made.native = native
    made._settling = settling
    made._asyncio_future_blocking = made.is_cancelled = False
    made._cancel_message = made._callback = made._context = made._more = None
    return made


def outcome_of(record: SentRecord) -> BatchDelivery:
    """The delivery that settles the record: another one once its batch was split."""
    native = record.native
    delivery: BatchDelivery = native.delivery
    if delivery.is_split:
        delivery, _ = delivery.locate(native.index)
    return delivery


def _settled(record: SentRecord, otherwise: str) -> BatchDelivery:
    """The outcome there is. Raises CancelledError, and InvalidStateError when there is none."""
    if record.is_cancelled:
        raise _cancelled(record)
    outcome = outcome_of(record)
    if not outcome.done:
        raise asyncio.InvalidStateError(otherwise)
    return outcome


def _error(record: SentRecord) -> Any:
    """What ended the record, a copy of its own: see ``FutureRecordMetadata.exception``."""
    error, told = record.native.exception, record._settling.error
    return error if told is None else told(error)


def _cancelled(record: SentRecord) -> Any:
    message = record._cancel_message
    return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)


def tell(record: SentRecord) -> None:
    """Call back whoever is to be called."""
    callback, context, more = record._callback, record._context, record._more
    record._callback = record._context = record._more = None
    if callback is not None:
        _call(record, callback, context)
    for other, its_context in more or ():
        _call(record, other, its_context)


def _call(record: SentRecord, callback: Callable[[Any], object], context: Any) -> None:
    try:
        context.run(callback, record)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        message = f"Exception in callback {callback!r}"
        told = {"message": message, "exception": error, "future": record}
        record._settling.loop.call_exception_handler(told)
