# cython: language_level=3, auto_pickle=False, autotestdict=False
# cython: boundscheck=True, wraparound=True, nonecheck=True
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""The per-record work of ``kprod.confluent``: ``produce``, ``Message``, delivery reports.

confluent-kafka's API needs an object per record, with key, value, headers and time, and a callback
that ``poll`` runs in the application's thread.
"""

import threading
from collections import deque
from contextvars import copy_context
from functools import partial

from kprod_ext.clock import monotonic
from kprod_ext.held_signals import acquire_in_rounds

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t
from libc.string cimport memset

from kprod_ext.futures cimport BatchOutcome, FutureRecordMetadata
from kprod_ext.process cimport Generation, current_generation, generation_mark
from kprod_ext.shared cimport RecordLock, SharedCount, release_lock, take_lock

cdef const Generation* MARK = generation_mark()

cdef int64_t CREATE_TIME = 1
cdef int64_t LOG_APPEND_TIME = 2
cdef int64_t OFFSET_INVALID = -1001
cdef int64_t INT16 = 2**15
CLOSED = "Producer has been closed"


@cython.freelist(64)        # a poll after every thousand records frees as many
cdef class Message:
    """A record and its outcome, with confluent_kafka.Message's arguments and calls."""

    cdef object _topic
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef object _error
    cdef FutureRecordMetadata _future
    cdef object _on_delivery
    cdef double _began
    cdef double _latency
    cdef int64_t _partition
    cdef int64_t _offset
    cdef int64_t _timestamp_type
    cdef int64_t _timestamp
    cdef int64_t _leader_epoch
    cdef int64_t _delivery_count

    def __init__(
        self,
        topic=None,
        int64_t partition=-1,
        int64_t offset=-1001,
        key=None,
        value=None,
        headers=None,
        error=None,
        timestamp=None,
        double latency=-1.0,
        int64_t leader_epoch=-1,
        int64_t delivery_count=-1,
    ):
        if not -INT16 <= delivery_count < INT16:
            raise OverflowError("delivery_count does not fit into 16 bits")
        self._topic = topic
        self._partition = -1 if partition < 0 else partition
        self._offset = OFFSET_INVALID if offset < 0 else offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        if timestamp is not None:
            self._timestamp_type, self._timestamp = timestamp
        self._latency = -1.0 if latency < 0 else latency
        self._leader_epoch = -1 if leader_epoch < 0 else leader_epoch
        self._delivery_count = delivery_count if delivery_count > 0 else -1

    def topic(self):
        """The topic's name."""
        return self._topic

    def partition(self):
        """The partition's number, None before the record has one."""
        return None if self._partition < 0 else self._partition

    def offset(self):
        """The offset, None where none is known."""
        return None if self._offset < 0 else self._offset

    def key(self):
        """The key."""
        return self._key

    def value(self):
        """The value."""
        return self._value

    def deserialized_key(self):
        """The key, as ``key`` returns it: a producer's message was never deserialized."""
        return self._key

    def deserialized_value(self):
        """The value, as ``value`` returns it."""
        return self._value

    def headers(self):
        """The headers, None for none."""
        return self._headers

    def error(self):
        """The KafkaError that ended the record, or None."""
        return self._error

    def timestamp(self):
        """The kind of timestamp, and milliseconds since the epoch."""
        return self._timestamp_type, self._timestamp

    def latency(self):
        """Seconds from ``produce`` to the outcome."""
        return None if self._latency < 0 else self._latency

    def leader_epoch(self):
        """The leader epoch; brokers do not send it to producers."""
        return None if self._leader_epoch < 0 else self._leader_epoch

    def delivery_count(self):
        """For share consumers."""
        return None if self._delivery_count < 1 else self._delivery_count

    def set_topic(self, value):
        """Replace the topic."""
        self._topic = value

    def set_value(self, value):
        """Replace the value."""
        self._value = value

    def set_key(self, value):
        """Replace the key."""
        self._key = value

    def set_headers(self, value):
        """Replace the headers."""
        self._headers = value

    def set_error(self, value):
        """Replace the error."""
        self._error = value

    def __len__(self):
        return 0 if self._value is None else len(self._value)

    def __bool__(self):
        return True

    cdef tuple _all(self):
        return (
            self._topic,
            self._partition,
            self._offset,
            self._key,
            self._value,
            self._headers,
            self._error,
            self.timestamp(),
            self._latency,
            self._leader_epoch,
            self._delivery_count,
        )

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return self._all() == (<Message>other)._all()

    __hash__ = None

    def __reduce__(self):
        return Message, self._all()


cdef Message _to_report(
    object on_delivery, object key, object value, object headers, double began
):
    """The message of a record that is about to be queued, for ``_delivered`` to fill in."""
    cdef Message message = Message.__new__(Message)
    message._on_delivery = on_delivery
    message._key = key
    message._value = value
    message._headers = headers
    message._began = began
    return message


cdef object _delivered(Message message, double ended_at, object error_for):
    """Fill in the record's outcome; return the callback to call with it, or None."""
    cdef FutureRecordMetadata future = message._future
    cdef object on_delivery = message._on_delivery
    cdef BatchOutcome outcome
    cdef Py_ssize_t index
    if on_delivery is None:
        return None
    outcome, index = future.delivery, future.index
    if outcome.is_split:
        outcome = outcome.part_of(&index)
    message._future = message._on_delivery = None
    message._topic, message._partition = outcome.tp
    message._latency = ended_at - message._began
    message._leader_epoch = message._delivery_count = -1
    if outcome.error is not None:
        message._error = error_for(outcome.error)
        message._offset = OFFSET_INVALID
        message._timestamp_type = message._timestamp = 0
        return on_delivery
    message._error = None
    message._offset = outcome.base_offset + index if outcome.base_offset >= 0 else OFFSET_INVALID
    if outcome.append_time < 0:
        message._timestamp_type, message._timestamp = CREATE_TIME, future.timestamp
    else:
        message._timestamp_type, message._timestamp = LOG_APPEND_TIME, outcome.append_time
    return on_delivery


cdef class _ReportedBatch:
    """The messages of one batch that wait for their report, in order."""

    cdef BatchOutcome outcome
    cdef list messages
    cdef double ended_at        # 0.0: it has no outcome yet


cdef bint _has_ended(BatchOutcome outcome) except -1:
    """True when every record of the batch has its outcome; a split one ends part by part."""
    cdef BatchOutcome part
    if not outcome.is_split:
        return outcome.done
    for _, part in outcome.parts:
        if not _has_ended(part):
            return False
    return True


cdef class DeliveryReports:
    """Any thread adds records; ``serve`` runs their callbacks in the thread that calls it.

    Each batch has one completion callback, not one per record.
    """

    cdef readonly SharedCount waiting
    cdef readonly object ready
    cdef public object on_ready
    cdef bint _only_errors
    cdef object _error_for
    cdef _ReportedBatch _latest
    cdef dict _batches
    # The keys are locks, each held by a thread that waits for something to serve. A dict is copied
    # in one step, also without a GIL.
    cdef dict _bells
    cdef set _inside                # the threads that run a record's callback now
    cdef readonly bint ended        # the producer is closed, and its last reports were served
    # Guards `waiting`, `_latest`, the batches and their messages. Nothing is allocated that the
    # garbage collector sees while it is held, and nothing is freed: either may come back here.
    cdef RecordLock _lock

    def __init__(self, bint only_errors, error_for):
        self._only_errors, self._error_for = only_errors, error_for
        self.ready, self._batches, self._bells, self._inside = deque(), {}, {}, set()

    cpdef int add(
        self, FutureRecordMetadata future, object on_delivery, object key, object value,
        object headers, double began,
    ) except -1:
        """A record was queued at ``began``."""
        return self.add_message(_to_report(on_delivery, key, value, headers, began), future)

    cdef int add_message(self, Message message, FutureRecordMetadata future) except -1:
        """The record of ``message`` was queued."""
        cdef BatchOutcome outcome = future.delivery
        cdef _ReportedBatch batch
        cdef _ReportedBatch found = None
        cdef bint added = False
        cdef bint ended = False
        message._future = future
        while not added:
            take_lock(&self._lock)
            try:
                if found is not None:
                    self._latest, found = found, self._latest   # the old one is freed later
                batch = self._latest
                if batch is not None and batch.outcome is outcome:
                    batch.messages.append(message)
                    if message._on_delivery is not None:
                        outcome.is_watched = True   # else a failure is logged
                    self.waiting += 1
                    added = True
                    # The batch may have ended, and been handed out, before.
                    ended = batch.ended_at > 0
            finally:
                release_lock(&self._lock)
            if not added:
                found = self._batch(outcome)
        if ended:
            self._hand_out(batch)
        return 0

    cdef _ReportedBatch _batch(self, BatchOutcome outcome):
        cdef _ReportedBatch made
        cdef _ReportedBatch batch = self._batches.get(outcome)
        if batch is not None:
            return batch
        made = _ReportedBatch()
        made.outcome, made.messages = outcome, []
        batch = self._batches.setdefault(outcome, made)
        if batch is made:
            outcome.on_done(partial(self._ended, batch), 0, False)
        return batch

    def _ended(self, _ReportedBatch batch not None):
        cdef double now = monotonic()
        take_lock(&self._lock)
        batch.ended_at = now
        release_lock(&self._lock)
        self._batches.pop(batch.outcome, None)
        self._hand_out(batch)

    cdef int _hand_out(self, object ready) except -1:
        self.ready.append(ready)
        self._ring()
        if self.on_ready is not None:
            self.on_ready()
        return 0

    cdef int _ring(self) except -1:
        """Wake the threads that wait. Called after `ready` got something."""
        for bell in list(self._bells):
            try:
                bell.release()
            except RuntimeError:
                pass        # another thread has rung it
        return 0

    def call_soon(self, event):
        """Let ``serve`` call this function as well."""
        self._hand_out(event)

    def begin_in_child(self):
        """Start again after a fork: records without a report belong to the parent."""
        memset(&self._lock, 0, sizeof(RecordLock))      # a thread of the parent may have held it
        self.waiting = 0
        self._latest, self._batches, self._bells, self._inside = None, {}, {}, set()
        self.ready.clear()

    def expedite(self):
        """Send lingering batches now: a caller waits."""
        for outcome in list(self._batches):
            outcome.expedite()

    def wait(self, timeout):
        """Wait at most ``timeout`` seconds until ``serve`` has a callback to run."""
        # No threading.Event: a signal handler that raises inside its wait can leave its lock held.
        cdef object bell = threading.Lock()
        bell.acquire()
        self._bells[bell] = None
        try:
            if not self.ready and not self.ended and timeout > 0:
                acquire_in_rounds(bell, min(timeout, threading.TIMEOUT_MAX))
        finally:
            del self._bells[bell]

    cpdef Py_ssize_t serve(self) except -1:
        """Run the ready callbacks; return their number. An exception of one ends the call."""
        cdef Py_ssize_t served = 0
        cdef object ready
        while self.ready:
            try:
                ready = self.ready.popleft()
            except IndexError:  # another thread took the last one
                ready = None
            if ready is None:
                break
            if isinstance(ready, _ReportedBatch):
                served += self._serve_batch(ready)
            else:
                ready()
                served += 1
        return served

    def end(self):
        """Run the remaining callbacks after the producer has closed.

        This includes batches that have just ended, whose own completion callback may be delayed by
        the thread that ends them. No thread waits for reports after this. All callbacks run; the
        first exception of one is returned.
        """
        cdef _ReportedBatch batch
        cdef object failure = None
        # First: a `produce` that is still running adds its record, then checks this, and serves.
        self.ended = True
        self._ring()
        for batch in list(self._batches.values()):
            if _has_ended(batch.outcome):
                self._ended(batch)      # once more in its callback, without messages then
        while self.ready:
            try:
                self.serve()
            except Exception as error:
                failure = failure or error
        return failure

    cpdef bint inside(self):
        """Whether this thread runs a delivery callback."""
        return PyThread_get_thread_ident() in self._inside

    def report(self, on_delivery, error, message):
        """Report a record that was counted as waiting but never added to a batch."""
        cdef object thread = PyThread_get_thread_ident()
        cdef bint nested = thread in self._inside
        self.expect(-1)
        if on_delivery is None:
            return
        self._inside.add(thread)
        try:
            on_delivery(error, message)
        finally:
            if not nested:
                self._inside.discard(thread)

    cdef Py_ssize_t _serve_batch(self, _ReportedBatch batch) except -1:
        cdef list fresh = []
        cdef list messages
        cdef Message message
        cdef Py_ssize_t served = 0
        cdef double ended_at
        cdef object thread = PyThread_get_thread_ident()
        cdef bint nested = thread in self._inside       # a callback polls
        take_lock(&self._lock)
        messages, batch.messages = batch.messages, fresh
        ended_at = batch.ended_at
        release_lock(&self._lock)
        self._inside.add(thread)
        try:
            for message in messages:
                served += 1
                on_delivery = _delivered(message, ended_at, self._error_for)
                if on_delivery is not None and not (self._only_errors and message._error is None):
                    on_delivery(message._error, message)
        finally:
            if not nested:
                self._inside.discard(thread)
            self.expect(-served)
            if served < len(messages):
                self._put_back(batch, messages[served:])
        return served

    cdef int _put_back(self, _ReportedBatch batch, list messages) except -1:
        """After an exception of a callback: the next call runs the callbacks after it."""
        take_lock(&self._lock)
        try:
            batch.messages[:0] = messages
        finally:
            release_lock(&self._lock)
        self.ready.appendleft(batch)
        self._ring()
        return 0

    cpdef void expect(self, Py_ssize_t records) noexcept:
        """Add to the number of records that wait for a report; a negative number subtracts."""
        take_lock(&self._lock)
        self.waiting += records
        release_lock(&self._lock)


cdef class Producing:
    """A Producer's per-record work; the subclass does the rest."""

    cdef public object _native          # None before it is made, and once it is being closed
    cdef public tuple _closing          # (thread, native) while a thread closes and flushes
    cdef readonly DeliveryReports _reports
    cdef public object _unassigned
    cdef dict _unassigned_topics
    cdef object _on_delivery
    cdef Py_ssize_t _most_messages
    cdef bint _has_statistics
    cdef object _partition_for_key
    cdef object _refusals
    cdef tuple _counts                  # partitions of topics, in a snapshot
    cdef RecordLock _lock               # guards `_counts`: no thread reads a tuple that is freed
    cdef Generation _generation         # of the process whose records it counts and reports

    def __init__(self, settings, DeliveryReports reports not None, partition_for_key, refusals):
        self._reports = reports
        self._on_delivery = settings.on_delivery
        self._most_messages = settings.most_messages
        self._has_statistics = settings.stats_cb is not None
        self._partition_for_key, self._refusals = partition_for_key, refusals
        self._counts = (None, {})
        self._generation = current_generation()

    def inherited_by_child(self):
        """Called in a forked child: records queued before belong to the parent, which reports them.

        This includes records that wait for their topic. Otherwise this process's records would
        queue behind them, and wait for a sender that only ``send`` starts.
        """
        memset(&self._lock, 0, sizeof(RecordLock))
        self._unassigned_topics.clear()
        self._reports.begin_in_child()
        self._generation = current_generation()

    @property
    def _inherited(self):
        """Whether this process was forked, and ``inherited_by_child`` has not been called yet."""
        return MARK[0] != self._generation

    def _use(self, native, unassigned):
        """From now on."""
        self._native, self._unassigned = native, unassigned
        self._unassigned_topics = unassigned.queues

    def produce(
        self,
        topic,
        value=None,
        key=None,
        partition=-1,
        callback=None,
        on_delivery=None,
        timestamp=0,
        headers=None,
    ):
        """Queue one record. ``poll`` or ``flush`` calls ``callback(error, message)``.

        ``on_delivery`` is another name of ``callback``.

        Raises BufferError if ``queue.buffering.max.messages`` records wait for their report or
        memory is used up, TypeError, KafkaException, and RuntimeError after ``close``.
        """
        cdef object native = self._native
        cdef object future = None
        cdef object failure = None
        cdef Message message
        cdef double began
        if native is None or MARK[0] != self._generation:
            native = self._usable()
        if self._reports.waiting >= self._most_messages:
            self._refuse_full()
        if isinstance(value, str):
            value = (<str>value).encode()
        if isinstance(key, str):
            key = (<str>key).encode()
        if headers is not None:
            headers = frozen_headers(headers)
        where = partition if partition != -1 else self._partition(native, topic, key)
        stamp = timestamp or None
        began = monotonic()
        report = callback if callback is not None else on_delivery
        if report is None:
            report = self._on_delivery
        if not self._unassigned_topics or topic not in self._unassigned_topics:
            # First: without memory for it the record is not queued.
            message = _to_report(report, key, value, headers, began)
            try:
                if where == -1:
                    native.check(topic, value, key, headers, None, stamp)
                else:
                    future = native.send(topic, value, key, headers, where, stamp)
            except self._refusals as error:
                failure = error
            if future is not None:
                self._reports.add_message(message, future)
                if self._reports.ended:         # `close` has run the last callbacks meanwhile
                    self._reports.serve()
                return
            self._refuse_unless_unassigned(failure)
        where = None if where == -1 else where
        given = topic, value, key, headers, where, stamp, report, began, copy_context()
        self._assign_later(given)

    cpdef object _usable(self):
        """The native producer. Raises RuntimeError once the producer is closed, or being closed.

        Callbacks that ``close`` itself runs may still use it, perhaps to produce a record again.
        """
        cdef object native, closing
        if MARK[0] != self._generation:
            self._begin_in_child()
        native, closing = self._native, self._closing
        if native is not None:
            return native
        if closing is None or closing[0] != PyThread_get_thread_ident():
            raise RuntimeError(CLOSED)
        return closing[1]

    cdef object _partition(self, object native, object topic, object key):
        """The partition of a key, or -1 if this package chooses it once the topic is known.

        None if the native producer chooses.
        """
        cdef dict counts
        cdef tuple counted
        if not key or self._partition_for_key is None:
            return None
        snapshot = native.metadata.snapshot
        take_lock(&self._lock)
        counted = self._counts          # together: another thread may replace them
        release_lock(&self._lock)
        seen, counts = counted
        if snapshot is not seen:
            counts = {}
            counted = snapshot, counts
            take_lock(&self._lock)
            self._counts, counted = counted, self._counts
            release_lock(&self._lock)
        count = counts.get(topic)
        if count is None:
            known = snapshot.topic(topic)
            if known is None:
                return -1
            count = counts[topic] = len(known)
        if count == 0:          # as a broker says: the native producer refuses the record
            return None
        return self._partition_for_key(key, count)

    def poll(self, timeout=-1):
        """Run the callbacks that are due, waiting at most ``timeout`` seconds for the first.

        -1 and None wait until another thread closes the producer. Returns the number of callbacks.
        Raises what a callback raises, KafkaException for a wait without limit inside a delivery
        callback, and RuntimeError after ``close``.
        """
        self._usable()
        if timeout == 0 and not self._has_statistics:
            # The usual call of a program that polls after every record.
            return self._reports.serve() if self._reports.ready else 0
        return self._wait_and_serve(timeout)


cpdef list frozen_headers(object headers):
    """As pairs, text as UTF-8. Raises TypeError."""
    cdef list made = []
    if isinstance(headers, tuple) or not isinstance(headers, (list, dict)):
        raise TypeError("expected list or dict of headers")
    for pair in headers.items() if isinstance(headers, dict) else headers:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("headers are (name, value) tuples")
        name, value = pair
        if not isinstance(name, str) or not (value is None or isinstance(value, (str, bytes))):
            raise TypeError("the name of a header is a str, its value str, bytes or None")
        made.append((name, (<str>value).encode() if isinstance(value, str) else value))
    return made
