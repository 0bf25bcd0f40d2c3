# cython: language_level=3, auto_pickle=False, autotestdict=False
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""The outcome of a batch, settled once for all its records, and the records' futures.

A future holds its batch's outcome and its own index, so settling a batch is one step however many
records it holds. ``kprod.buffer.delivery`` lets threads and tasks wait.
"""

import copy
from operator import itemgetter

cimport cython
from libc.stdint cimport int32_t, int64_t

from kprod_ext.shared cimport release_lock, take_lock

cdef int64_t NO_OFFSET = -1
cdef int64_t NO_TIMESTAMP = -1
cdef object _copied = copy.copy     # callers get copies of errors: see BatchDelivery.raise_error
cdef object _by_index = itemgetter(0)
cdef object _new_tuple = tuple.__new__

cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(object one)
    void PyObject_GC_Track(object one)
    void PyObject_GC_UnTrack(object one)


cpdef void untrack(object one) noexcept:
    """Make the garbage collector ignore an object."""
    PyObject_GC_UnTrack(one)


cpdef void track(object one) noexcept:
    """Make the garbage collector track an object again."""
    if not PyObject_GC_IsTracked(one):
        PyObject_GC_Track(one)


def _nothing():
    """Replaces a batch's ``expedite`` when the batch has ended."""


cdef class BatchOutcome:
    """A base offset or an error, settled exactly once."""

    def __init__(self, tp, expedite, callbacks=None, wait_for=None):
        self.tp = tp
        self.base_offset = NO_OFFSET
        self.append_time = NO_TIMESTAMP
        self.callbacks = self.callbacks_type() if callbacks is None else callbacks
        self.wait_for = wait_for
        self.parts = ()
        self._expedite = expedite
        untrack(self)

    def succeed(self, int64_t base_offset, int64_t append_time):
        """Set the result: the batch is stored. False if it had already ended."""
        return self._settle(base_offset, append_time, None, ())

    def fail(self, error):
        """Set ``error``, on all parts, too. False if the batch had already ended."""
        # First: afterwards it has ended, or is split for good, and `parts` changes no more.
        cdef bint ended = self._settle(NO_OFFSET, NO_TIMESTAMP, error, ())
        for _, part in self.parts:
            ended |= part.fail(error)
        return ended

    def end_as(self, tuple parts not None):
        """Set different outcomes: ``parts`` as in ``split_into``."""
        return self._settle(NO_OFFSET, NO_TIMESTAMP, None, parts)

    cdef bint _settle(
        self, int64_t base_offset, int64_t append_time, object error, tuple parts
    ) except -1:
        cdef bint settles
        take_lock(&self._lock)
        try:
            settles = not self.done
            if (settles and error is not None and self.is_split) or (
                not settles and self._notifying
            ):
                return False            # its parts end it (`_end_with_parts`); or another thread
            # Else an exception ended an earlier call, and this one goes on from there.
            if settles:
                if parts or error is not None:
                    track(self)
                if parts:
                    self.parts = parts  # first: the waiters read it
                    self.is_split = True
                self.base_offset, self.append_time, self.error = base_offset, append_time, error
                self.done = True
            if self._waiters is None and self._due is None and self._tasks is None:
                self._end_notifying()
            self._notifying = not self._notified
        finally:
            release_lock(&self._lock)
        if self._notifying:
            try:
                self._notify_all()
            finally:
                self._notifying = False
        self._open_latch()
        if self._whole is not None:
            self._whole._end_with_parts()
        return settles

    cdef int _notify_all(self) except -1:
        if self._tasks is not None:     # no thread adds to them, for the batch is done
            for waiting in self._tasks.values():
                waiting.ring()
            self._tasks = None
        while not self._notified:
            self._call_waiters()
        return 0

    cdef int _call_waiters(self) except -1:
        """Call the current waiters, in the order of their records; end if none is left.

        After an exception the remaining ones are in `_due`, and the next call continues with them.
        """
        take_lock(&self._lock)
        if self._due is None:
            self._due, self._waiters = self._waiters, None
        if self._due is None:
            self._end_notifying()
        release_lock(&self._lock)
        if self._due is None:
            return 0
        self._due.sort(key=_by_index)
        if self.callbacks.leave([callback for _, callback in self._due]):
            self._due = None
            return 0
        self._due.reverse()
        while self._due:
            _, callback = self._due.pop()   # before it runs: nothing runs twice
            callback()
        self._due = None
        return 0

    cdef int _end_notifying(self) except -1:
        """All waiters are called. The caller holds the lock, and opens the latch afterwards."""
        self._notified = True
        # A future that is kept must not keep the producer's memory. And the garbage collector,
        # which does not see futures, would never find a cycle through one.
        self._expedite, self.wait_for = _nothing, None
        return 0

    cdef int _open_latch(self) except -1:
        """Release waiting threads. Without the lock: a latch runs Python code."""
        cdef object latch = None
        take_lock(&self._lock)
        if self._notified:
            latch = self._latch
        release_lock(&self._lock)
        if latch is not None:
            latch.open()
            take_lock(&self._lock)
            self._latch = None          # last: an exception leaves the latch to be opened
            release_lock(&self._lock)
        return 0

    def is_observed(self):
        """Whether a caller waits, or a callback takes errors: also for the batch before a split."""
        return self.is_watched or (self._whole is not None and self._whole.is_observed())

    def split_into(self, parts):
        """Split the batch: ``parts`` are (index of the first record, outcome).

        If it has already ended, as when a closing thread disowns it, the parts end in the same way.
        """
        cdef BatchOutcome part
        cdef tuple made = tuple(parts)
        for _, part in made:
            part._whole = self
            track(part)
        track(self)
        take_lock(&self._lock)
        if not self.done:
            self.parts, self.is_split = made, True
        release_lock(&self._lock)
        for _, part in () if self.is_split else made:
            part.fail(self.error)

    def _end_with_parts(self):
        cdef BatchOutcome part
        for _, part in self.parts:
            if not part.done:
                return
        self._settle(NO_OFFSET, NO_TIMESTAMP, None, ())

    cdef BatchOutcome part_of(self, Py_ssize_t* index):
        """The outcome with the record at ``index``; ``index`` becomes its index there."""
        cdef BatchOutcome part
        if self.is_split:
            for first, part in reversed(self.parts):
                if index[0] >= <Py_ssize_t>first:
                    index[0] -= <Py_ssize_t>first
                    return part.part_of(index)
        return self

    def locate(self, Py_ssize_t index):
        """The outcome of the record at ``index``, and its index there."""
        cdef BatchOutcome part = self.part_of(&index)
        return part, index

    def on_done(self, callback, index=0, bint hears_errors=True):
        """Queue ``callback`` once the batch has ended; immediately, if it has."""
        cdef tuple waiter = (index, callback)
        cdef list first = [waiter]
        self.has_listeners = True
        if hears_errors:
            self.is_watched = True
        take_lock(&self._lock)
        try:
            if not self._notified:
                if self._waiters is None:
                    self._waiters = first
                    track(self)
                else:
                    self._waiters.append(waiter)
                return
        finally:
            release_lock(&self._lock)
        self.callbacks.put([callback])

    def expedite(self):
        """A caller is about to wait: the batch need not linger. Never waits."""
        if not (self.done or self.awaited):
            self.awaited = True
            take_lock(&self._lock)
            expedite = self._expedite
            release_lock(&self._lock)
            expedite()

    def latch(self, made):
        """The latch that opens once all waiters are called, and ``wait_for``; None if they are."""
        cdef object latch = None
        cdef object wait_for = None
        cdef bint notified
        take_lock(&self._lock)
        notified = self._notified
        if not notified:
            if self._latch is None:
                self._latch = made
            latch, wait_for = self._latch, self.wait_for
        release_lock(&self._lock)
        return None if notified else (latch, wait_for)

    def join(self, loop, made):
        """The waiter of the tasks of ``loop``, at first ``made``; None if the batch has ended."""
        cdef dict first = {}
        take_lock(&self._lock)
        try:
            if self.done:
                return None
            if self._tasks is None:
                self._tasks = first
                track(self)
            return self._tasks.setdefault(loop, made)
        finally:
            release_lock(&self._lock)


@cython.no_gc
cdef class FutureRecordMetadata:
    """The outcome of one record, compatible with kafka-python's future."""

    def __cinit__(
        self,
        BatchOutcome delivery not None,
        int32_t index,
        int64_t timestamp,
        int32_t key_size,
        int32_t value_size,
        int32_t header_size,
    ):
        self.delivery = delivery
        self.index = index
        self.timestamp = timestamp
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size

    @property
    def is_done(self):
        """True once the record is acknowledged or has failed."""
        return outcome_of(self).done

    @property
    def value(self):
        """The record's metadata; None until it is stored, and if it failed."""
        return metadata_of(self) if _has_succeeded(self) else None

    @property
    def exception(self):
        """The record's error; None until it has failed, and if it is stored."""
        error = _error(self)
        return None if error is None else _copied(error)

    @property
    def topic_partition(self):
        """Where the record is sent, known before its outcome."""
        return self.delivery.tp

    def done(self):
        """The same as ``is_done``, under the name that concurrent.futures and asyncio have."""
        return outcome_of(self).done

    def succeeded(self):
        """True once the record was acknowledged."""
        return _has_succeeded(self)

    def failed(self):
        """True once the record has failed."""
        return _error(self) is not None

    def retriable(self):
        """True if the record failed with a retriable error: sending it again may succeed."""
        error = _error(self)
        return error is not None and error.retriable

    def get(self, timeout=None):
        """Wait at most ``timeout`` seconds; return the metadata or raise the record's error."""
        cdef BatchOutcome whole = self.delivery
        if timeout is not None or whole.has_listeners or not outcome_of(self).done:
            whole.wait_for_record(self.index, timeout)
        return metadata_of(self)

    def result(self, timeout=None):
        """The same as ``get``, under the name that concurrent.futures and asyncio have for it."""
        return self.get(timeout)

    def __await__(self):
        """``await future`` in any task of an asyncio loop: what ``get`` returns or raises."""
        return self.delivery.await_record(self)

    def as_concurrent(self):
        """A ``concurrent.futures.Future`` with the same outcome."""
        from concurrent.futures import Future

        twin = Future()
        twin.set_running_or_notify_cancel()
        self.add_callback(twin.set_result).add_errback(twin.set_exception)
        return twin

    def add_callback(self, fn, *args, **kwargs):
        """Call ``fn(*args, metadata, **kwargs)`` once the record was acknowledged."""
        self.delivery.call_back(self, fn, args, kwargs, stored=True)
        return self

    def add_errback(self, fn, *args, **kwargs):
        """Call ``fn(*args, error, **kwargs)`` once the record has failed."""
        self.delivery.call_back(self, fn, args, kwargs, failed=True)
        return self

    def add_both(self, fn, *args, **kwargs):
        """Call ``fn`` with the metadata or the error."""
        self.delivery.call_back(self, fn, args, kwargs, stored=True, failed=True)
        return self

    def add_done_callback(self, fn):
        """Call ``fn(future)`` once the record has an outcome, as concurrent.futures does."""
        self.delivery.call_with(self, fn)

    def chain(self, future):
        """Call ``future.success(metadata)`` or ``future.failure(error)`` with the outcome."""
        return self.add_callback(future.success).add_errback(future.failure)

    def __repr__(self):
        state = "failed" if self.failed() else "succeeded" if self.is_done else "pending"
        return f"<FutureRecordMetadata {self.delivery.tp} {state}>"


# Functions, not methods: a class with C methods puts the address of a table of them into each
# object.

cdef BatchOutcome outcome_of(FutureRecordMetadata future):
    """The outcome that settles this record: a part once its batch was split."""
    cdef BatchOutcome whole = future.delivery
    cdef Py_ssize_t index = future.index
    return whole.part_of(&index) if whole.is_split else whole


cdef object _error(FutureRecordMetadata future):
    cdef BatchOutcome outcome = outcome_of(future)
    return outcome.error if outcome.done else None


cdef bint _has_succeeded(FutureRecordMetadata future) except -1:
    cdef BatchOutcome outcome = future.delivery
    # In this order: a batch with records that end differently has its parts before it is done.
    if not outcome.done or outcome.is_split:
        outcome = outcome_of(future)
    return outcome.done and outcome.error is None


cdef object metadata_of(FutureRecordMetadata future):
    """Returns or raises as ``get`` does. The caller has seen that the record has an outcome."""
    cdef BatchOutcome outcome = future.delivery
    cdef Py_ssize_t index = future.index
    if outcome.is_split:
        outcome = outcome.part_of(&index)
    if outcome.error is not None:
        outcome.raise_error()
    topic, partition = outcome.tp
    cdef int64_t offset = outcome.base_offset
    cdef int64_t timestamp = outcome.append_time
    made = _new_tuple(
        outcome.metadata_type,
        (
            topic,
            partition,
            outcome.tp,
            offset + index if offset != NO_OFFSET else NO_OFFSET,
            timestamp if timestamp != NO_TIMESTAMP else future.timestamp,
            None,       # the checksum: a batch has one, a record none
            future.key_size,
            future.value_size,
            future.header_size,
        ),
    )
    untrack(made)       # text and numbers, perhaps 100,000 of them: the collector passes over
    return made
