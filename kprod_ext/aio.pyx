# cython: language_level=3, auto_pickle=False, autotestdict=False
# cython: boundscheck=True, wraparound=True, nonecheck=True
"""The per-record work of asyncio producers: queueing a record, and its asyncio future.

``gather``, ``wait``, ``wait_for`` and ``await`` accept the record as an asyncio future, because it
has the attributes that asyncio checks (``asyncio.isfuture``): so they need no task per record. A
record reads its outcome from its batch, and costs nothing more if no task waits for it.
"""

import asyncio
from collections import deque
from contextvars import copy_context
from functools import partial

from kprod_ext.clock import monotonic

cimport cython

from kprod_ext.futures cimport BatchOutcome, FutureRecordMetadata, metadata_of, outcome_of

cdef object _running_loop = asyncio.get_running_loop

# How long kprod may work in one iteration of the loop, in seconds, plus the last few records or the
# last callback.
LONGEST_QUEUEING = 0.001
LONGEST_CALLBACKS = 0.002
MOST = 1024         # records queued in one iteration at most, even if they take little time
TURN = 64           # waiting tasks that are woken in one iteration
NOTHING = (None, None)      # no record that waits; compared by identity

cdef double _longest_queueing = LONGEST_QUEUEING
cdef double _longest_callbacks = LONGEST_CALLBACKS
cdef Py_ssize_t _most = MOST
cdef Py_ssize_t _turn = TURN
cdef Py_ssize_t LOOK = 16           # records, or callbacks, between two readings of the clock
cdef Py_ssize_t REMEMBERED = 64     # one of this many records is remembered, to wait for its memory
cdef object _END = object()

cdef enum Cancelling:
    NONE = 0
    DUE = 1         # the callbacks have not been called yet
    OVER = 2        # the cancelled waits have ended; with ``renews`` the next one starts again


cdef class LoopTurns:
    """Limits the callers admitted in each iteration of the loop; others wait in order."""

    cdef Py_ssize_t _admitted       # in this iteration
    cdef bint _ending               # the end of this iteration is scheduled
    cdef double _ends_at            # when no more are admitted
    cdef object _row
    cdef object _loop

    def __cinit__(self):
        self._row = deque()

    cpdef bint admit(self) except -1:
        """Whether the caller may continue immediately."""
        if self._admitted % LOOK == 0 and not self._looks():
            return False
        self._admitted += 1
        return True

    cdef bint _looks(self) except -1:
        """Whether this iteration may continue: checks clock, waiting tasks and count."""
        if self._admitted == 0 and not self._row:
            self._ends_at = <double>monotonic() + _longest_queueing
            self._enter(_running_loop())
            self._end_soon()
            return True
        if self._row or self._admitted >= _most or <double>monotonic() >= self._ends_at:
            self.spend()
            return False
        return True

    cdef int _enter(self, object loop) except -1:
        if loop is not self._loop:      # the other loop may have ended within an iteration
            self._loop, self._ending = loop, False
            self._row.clear()
        return 0

    cdef int _end_soon(self) except -1:
        if not self._ending:
            self._loop.call_soon(self._end)
            self._ending = True     # last: if a signal handler raises, the next caller tries again
        return 0

    cpdef void spend(self) noexcept:
        """Admit no more callers in this iteration: one record has used up its time."""
        self._admitted = _most

    async def wait(self):
        """Wait for a place in a later iteration, after ``admit`` has refused."""
        loop = _running_loop()
        self._enter(loop)
        place = loop.create_future()
        self._row.append(place)
        self._end_soon()
        await place

    def _end(self):
        self._admitted = 0
        while self._row and self._admitted < _turn:
            place = self._row.popleft()
            if not place.done():    # cancelled
                self._admitted += 1
                place.set_result(None)
        self._ending = False
        if self._admitted > 0:
            self._ends_at = <double>monotonic() + _longest_queueing
            self._end_soon()


cdef class Sending:
    """The per-record work; the subclass does the rest. For the tasks of one loop."""

    cdef readonly object native
    cdef readonly LoopTurns turns
    cdef readonly object under_way
    cdef object _send
    cdef bint _has_interceptors
    cdef object _waits
    cdef Py_ssize_t _queued
    cdef object _make_notifier
    cdef OutcomeNotifier _notifier

    def __init__(self, native, notifier, waits):
        self.native, self._send = native, native.send
        self._has_interceptors = native.has_interceptors
        self.turns = LoopTurns()
        self.under_way = deque()
        self._make_notifier, self._waits = notifier, waits

    def send_at_once(
        self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None
    ):
        """As ``put_at_once``, with a future for the tasks of this loop."""
        cdef FutureRecordMetadata native
        if not self.turns.admit():
            return None
        native = self._queue(topic, value, key, headers, partition, timestamp_ms)
        return None if native is None else self.sent(native)

    def put_at_once(
        self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None
    ):
        """Queue a record if no wait is needed; else return None."""
        if not self.turns.admit():
            return None
        return self._queue(topic, value, key, headers, partition, timestamp_ms)

    def put_until_waiting(self, topic, values, keys, list queued not None):
        """Queue records until an iteration has queued enough, or a record has to wait."""
        cdef FutureRecordMetadata native
        cdef object value
        cdef object key = None
        while self.turns.admit():
            value = next(values, _END)
            if value is _END:
                return None
            if keys is not None:
                key = next(keys, _END)
                if key is _END:
                    raise ValueError(f"there are {len(queued)} keys, and more values")
            native = self._queue(topic, value, key, None, None, None)
            if native is None:
                return value, key
            queued.append(native)
        return NOTHING

    def take_outcomes(self, list queued not None, list stored not None):
        """Add available outcomes in order, as many as an iteration of the loop has time for."""
        cdef double ends_at = <double>monotonic() + _longest_callbacks
        cdef Py_ssize_t at = len(stored)
        cdef FutureRecordMetadata native
        while at < len(queued):
            native = queued[at]
            if not outcome_of(native).done:
                break
            stored.append(metadata_of(native))
            at += 1
            if at % LOOK == 0 and <double>monotonic() >= ends_at:
                break

    cpdef SentRecord sent(self, FutureRecordMetadata native):
        """The future of a queued record for the tasks of the running loop."""
        cdef object loop = _running_loop()
        if self._notifier is None or self._notifier.loop is not loop:
            self._notifier = self._make_notifier(loop)
        return SentRecord(self._notifier, native)

    cdef FutureRecordMetadata _queue(
        self, object topic, object value, object key, object headers, object partition,
        object timestamp_ms,
    ):
        """Queue a record if no wait is needed; else end this iteration and return None.

        A record for interceptors is always queued by ``Attempts``, which calls them once.
        """
        cdef FutureRecordMetadata native = None
        if self._has_interceptors:
            return None
        try:
            native = self._send(topic, value, key, headers, partition, timestamp_ms)
        except self._waits:
            # ``send`` has woken the sender by a system call: another thread may have run meanwhile
            # for the interpreter's switch interval, 5 ms.
            self.turns.spend()
        if native is not None:
            self._queued += 1
            if self._queued % REMEMBERED == 0:
                self.remember(native)
        return native

    cpdef int remember(self, FutureRecordMetadata native) except -1:
        """Remember a record; the subclass later waits for the memory of its batch."""
        while self.under_way and self.under_way[0].is_done:
            self.under_way.popleft()
        self.under_way.append(native)
        return 0


cdef class OutcomeNotifier:
    """Wakes the tasks of one loop that wait for records, with one call to the loop per batch."""

    cdef readonly object loop
    cdef readonly object error
    cdef readonly bint renews
    cdef readonly object stored
    cdef dict _batches
    cdef BatchOutcome _latest
    cdef list _latest_records
    cdef object _due
    cdef bint _scheduled
    cdef double _rests_at           # when a task that awaits done records must yield

    def __init__(self, loop, error=None, *, bint renews=False, stored=None):
        self.loop, self.error, self.renews, self.stored = loop, error, renews, stored
        self._batches, self._due = {}, deque()

    cdef bint rests(self) except -1:
        """Whether tasks have awaited completed records for so long that they must yield.

        ``await`` of a completed record does not yield to the loop, so a hundred thousand in a row
        would keep other tasks from running.
        """
        cdef double now = monotonic()
        if now < self._rests_at:
            return False
        self._rests_at = now + _longest_callbacks
        return True

    cdef int watch(self, SentRecord record) except -1:
        """Call the callbacks once the batch has ended; soon, if it has already."""
        cdef BatchOutcome outcome = outcome_of(record.native)
        if record.cancelling == DUE or outcome.done:
            self._due.append(record)
            self._schedule()
            return 0
        if outcome is not self._latest:
            self._turn_to(outcome)
        self._latest_records.append(record)
        return 0

    cdef int _turn_to(self, BatchOutcome outcome) except -1:
        cdef list records = self._batches.get(outcome)
        if records is None:
            if self.renews:
                self._await(outcome)
            else:
                outcome.on_done(partial(self._ended_elsewhere, outcome))
            records = self._batches.setdefault(outcome, [])     # last, as in LoopTurns._end_soon
        self._latest, self._latest_records = outcome, records
        return 0

    cdef int _await(self, BatchOutcome outcome) except -1:
        """Wait as a task would: this ends the linger of the batch."""
        waiting = outcome.wait_in_loop()
        waiter = next(waiting, None)
        if waiter is None:          # the batch has ended since
            self.loop.call_soon(self._ended, outcome)
        else:
            waiter.add_done_callback(partial(self._waited, outcome, waiting))
        return 0

    def _waited(self, outcome, waiting, _):
        next(waiting, None)         # releases the waiter
        self._ended(outcome)

    def _ended_elsewhere(self, outcome):
        """Wake the tasks. Thread: the callback thread. A closed loop has no waiting tasks."""
        try:
            self.loop.call_soon_threadsafe(self._ended, outcome)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def _ended(self, BatchOutcome outcome not None):
        records = self._batches.pop(outcome, None)
        if outcome is self._latest:
            self._latest, self._latest_records = None, []
        if records:
            self._due.extend(records)
            self._schedule()

    cdef int _schedule(self) except -1:
        if not self._scheduled:
            self.loop.call_soon(self._turn)
            self._scheduled = True      # last, as in LoopTurns._end_soon
        return 0

    def _turn(self):
        """Call as many callbacks as an iteration has time for; the others in the next one.

        Callbacks of records that are cancelled together run in one iteration: the first of them
        wakes a task that may wait for all of them again.
        """
        cdef double ends_at = <double>monotonic() + _longest_callbacks
        cdef Py_ssize_t called = 0
        try:
            while self._due:
                _call_back(self._due.popleft())
                called += 1
                if called % LOOK == 0 and <double>monotonic() >= ends_at and not self._cancels():
                    break
        finally:
            self._scheduled = False
            if self._due:
                self._schedule()

    cdef bint _cancels(self) except -1:
        return self._due and (<SentRecord?>self._due[0]).cancelling == DUE


@cython.no_gc           # releases its callbacks when they are called
cdef class SentRecord:
    """The outcome of one record, for the tasks of the loop that has sent it: an asyncio future.

    It has C functions instead of C methods: a method table would take eight bytes per object.
    """

    cdef readonly FutureRecordMetadata native
    cdef OutcomeNotifier _notifier
    cdef object _callback           # the first callback, and its context
    cdef object _context
    cdef list _more                 # pairs of the others
    cdef object _cancelled_by
    cdef public bint _asyncio_future_blocking
    cdef Cancelling cancelling

    def __cinit__(self, OutcomeNotifier notifier not None, FutureRecordMetadata native not None):
        self.native, self._notifier = native, notifier

    # The outcome ----------------------------------------------------------------------------------

    def done(self):
        """True once the record has an outcome, or the wait for it was cancelled.

        With ``renews`` a cancelled record is done only until its callbacks have been called: then
        ``gather`` can wait for it again.
        """
        return self.cancelling == DUE or outcome_of(self.native).done

    def cancelled(self):
        """True once the wait was cancelled; with ``renews``, until there is an outcome."""
        return _is_cancelled(self)

    def exception(self):
        """The record's error or None. Raises InvalidStateError without outcome, CancelledError."""
        return None if _settled(self, "Exception is not set.").error is None else _error(self)

    def result(self):
        """The record's metadata. Raises its error, and the errors of ``exception``."""
        if _settled(self, "Result is not set.").error is not None:
            failure = _error(self)
            raise failure
        stored = self._notifier.stored
        return metadata_of(self.native) if stored is None else stored(self.native)

    def _make_cancelled_error(self):
        return _cancelled(self)

    @property
    def _cancel_message(self):
        return self._cancelled_by

    def get_loop(self):
        """The loop of the tasks that may wait."""
        return self._notifier.loop

    @property
    def __class__(self):
        """The class that ``isinstance`` sees: programs check for asyncio's own futures."""
        return asyncio.Future

    @property
    def _loop(self):
        return self._notifier.loop

    # Waiting --------------------------------------------------------------------------------------

    def __await__(self):
        if self.done() and self._notifier.rests():
            yield                   # as asyncio.sleep(0) does
        if self._notifier.renews:
            # With its own waiter: cancelling a task ends only its wait.
            return (yield from self.native.__await__())
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
            if not self.done():
                raise RuntimeError("await wasn't used with future")
        return self.result()

    def __iter__(self):
        return self.__await__()

    def add_done_callback(self, fn, *, context=None):
        """Let the loop call ``fn(self)`` once it is done, soon if it is."""
        if context is None:
            context = copy_context()
        if self._callback is not None:
            if self._more is None:
                self._more = []
            self._more.append((fn, context))
            return
        if self._notifier.renews:
            self.cancelling = NONE
        self._notifier.watch(self)
        self._callback, self._context = fn, context     # last, as in LoopTurns._end_soon

    def remove_done_callback(self, fn):
        """Remove ``fn`` from the callbacks; return how often it was there."""
        cdef list pairs = _take_callbacks(self)
        cdef list left = [pair for pair in pairs if pair[0] != fn]
        if left:
            self._callback, self._context = left[0]
            self._more = left[1:]
        return len(pairs) - len(left)

    def cancel(self, msg=None):
        """Cancel the wait, not the sending; False if the record is done."""
        if self.done():
            return False
        self.cancelling, self._cancelled_by = DUE, msg
        if self._callback is not None:
            self._notifier.watch(self)
        elif self._notifier.renews:
            self.cancelling = OVER
        return True

    def __getattr__(self, str name not None):
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.native, name)

    def __repr__(self):
        state = "cancelled" if _is_cancelled(self) else repr(self.native)[1:-1]
        return f"<SentRecord {state}>"


cdef bint _is_cancelled(SentRecord record) except -1:
    if record.cancelling == OVER:
        return not outcome_of(record.native).done
    return record.cancelling == DUE


cdef BatchOutcome _settled(SentRecord record, str otherwise):
    """The outcome. Raises InvalidStateError if there is none yet, and CancelledError."""
    cdef BatchOutcome outcome
    if _is_cancelled(record):
        failure = _cancelled(record)
        raise failure
    outcome = outcome_of(record.native)
    if not outcome.done:
        failure = asyncio.InvalidStateError(otherwise)
        raise failure
    return outcome


cdef object _error(SentRecord record):
    """A copy of the record's error: see ``FutureRecordMetadata.exception``."""
    translate = record._notifier.error
    return record.native.exception if translate is None else translate(record.native.exception)


cdef object _cancelled(SentRecord record):
    message = record._cancelled_by
    return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)


cdef list _take_callbacks(SentRecord record):
    """Remove the callbacks and return them as (callback, context), in order."""
    cdef list pairs = []
    if record._callback is not None:
        pairs.append((record._callback, record._context))
        pairs.extend(record._more or ())
    record._callback = record._context = record._more = None
    return pairs


cdef int _call_back(SentRecord record) except -1:
    """Call the callbacks of a record, in order."""
    cdef list more = [] if record._more is None else record._more
    cdef Py_ssize_t called = 0
    callback, context = record._callback, record._context
    record._callback = record._context = record._more = None
    try:
        if callback is not None:
            _call(record, callback, context)
        while called < len(more):
            callback, context = more[called]
            called += 1
            _call(record, callback, context)
    except BaseException:
        # SystemExit, or Ctrl-C: the loop may run again, and other tasks wait for the record.
        if called < len(more):
            _call_back_later(record, more[called:])
        raise
    if record.cancelling == DUE and record._notifier.renews:
        record.cancelling = OVER
    return 0


cdef int _call_back_later(SentRecord record, list pairs) except -1:
    """Let the next iteration call these callbacks, before those that were added meanwhile."""
    pairs.extend(_take_callbacks(record))
    record._callback, record._context = pairs[0]
    record._more = pairs[1:]
    record._notifier._due.append(record)
    return 0


cdef int _call(SentRecord record, object callback, object context) except -1:
    try:
        context.run(callback, record)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        message = f"Exception in callback {callback!r}"
        context = {"message": message, "exception": error, "future": record}
        record._notifier.loop.call_exception_handler(context)
    return 0
