# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The batches of one partition, oldest first, under one lock.

The compiled ``send`` and the Python path both append records here: to the open batch, or to a new
one when the open batch has no room. The .pxd says which fields the lock guards. A thread that holds
the lock runs no Python code except an application's clock, and allocates no object that the garbage
collector tracks (except to raise an internal error), because a finalizer could re-enter this queue.
So an appender makes a new batch before it takes the lock, and queues the batch only if the queue
has not changed meanwhile.
"""

cimport cython

from kprod_ext.batch cimport (
    NO_ROOM,
    ProducerBatch,
    REFUSED,
    TailMemory,
    clear_tail,
    has_filled,
    lend_tail,
    seen_full,
    take_record,
    take_tail_back,
)
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.futures cimport FutureRecordMetadata, give_delivery, new_future
from kprod_ext.record cimport (
    HeldRecord,
    NO_TIME,
    Record,
    RecordClock,
    batch_bound,
    checked_payload,
    frozen_headers,
    hold_record,
    now_with_gil,
    release_record,
)
from kprod_ext.shared cimport KPROD_HAS_GIL, release_lock, take_lock, spin_for_lock

from functools import partial

cdef enum:
    PUSHED                  # the new batch is queued
    CHANGED                 # another thread changed the queue; retry


@cython.final
cdef class StickyPartition:
    """One partition, and the bytes appended to it since it was chosen."""

    def __cinit__(
        self, Py_ssize_t partition, Py_ssize_t batch_size, StickyPartition following=None
    ):
        if partition < 0 or batch_size < 1:
            raise ValueError(f"no such partition or batch size: {partition}, {batch_size}")
        self.partition = partition
        self.batch_size = batch_size
        self.following = following

    cpdef StickyPartition current(self):
        """The first of this one and those after it with a share left; the last if none has one."""
        cdef StickyPartition sticky = self
        while sticky.spent and sticky.following is not None:
            sticky = sticky.following
        return sticky

    def chain(self):
        """This one and those that follow it."""
        cdef list chain = []
        cdef StickyPartition sticky = self
        while sticky is not None:
            chain.append(sticky)
            sticky = sticky.following
        return chain

    def add(self, Py_ssize_t nbytes, bint batch_ready):
        """Count a record of nbytes. True when the partition's share is used up."""
        return self.count(nbytes, batch_ready)

    # Callers may have the GIL; before Python 3.13 they keep it: a thread with this lock waits for
    # nothing.

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept nogil:
        spin_for_lock(&self._lock)
        self._produced += nbytes
        if self._produced >= share_of(self.batch_size, batch_ready):
            self.spent = True
        release_lock(&self._lock)
        return self.spent

    cdef Py_ssize_t left(self, bint batch_ready) noexcept nogil:
        """Bytes left of the partition's share."""
        cdef Py_ssize_t left
        spin_for_lock(&self._lock)
        left = share_of(self.batch_size, batch_ready) - self._produced
        release_lock(&self._lock)
        return left


cdef class AppendContext:
    """State shared by all queues of one accumulator: memory, clocks, listeners for new batches."""

    def __init__(
        self,
        BufferPool pool not None,
        *,
        Py_ssize_t batch_size,
        Py_ssize_t batch_max_size,
        RecordClock clock not None,
        now,
        batch_type,
        delivery_type,
        callbacks,
        ratios,
        set incomplete not None,
        on_change,
        wake,
        wake_within,
        wait=None,
        compression=None,
    ):
        self.pool = pool
        self.batch_size, self.batch_max_size = batch_size, batch_max_size
        self.clock = clock
        self._now = now
        self._batch_type, self._delivery_type = batch_type, delivery_type
        self.callbacks, self._ratios, self._compression = callbacks, ratios, compression
        self._incomplete, self._on_change = incomplete, on_change
        self._wake, self._wake_within = wake, wake_within
        self._wait = wait

    cdef int wake(self) except -1:
        """Wake the sender, even if a signal handler raises: records are queued."""
        try:
            self._wake()
        except BaseException:
            self._wake()
            raise
        return 0

    cdef bint refuses(self) except -1:
        """Whether no record may be queued now."""
        if self.closed:
            return True
        return self.refusal is not None and self.refusal() is not None


@cython.no_gc
cdef class AppendResult:
    """One record that was queued (Kafka's ``RecordAppendResult``)."""


def _expedite(PartitionQueue queue):
    """Make the sender check a queue, because a caller waits for one of its batches."""
    queue.context._on_change(queue)
    queue.context.wake()


def _wait_for(PartitionQueue queue, ended, timeout, first):
    """Wait for a batch of a queue; first means that no other thread has waited for it."""
    if first:
        queue.context._on_change(queue)
    return queue.context._wait(ended, timeout, first)


@cython.no_gc_clear     # repeated here because Cython 3.3 ignores the decorator in the .pxd
cdef class PartitionQueue:
    """The batches of one partition."""

    def __cinit__(self, AppendContext context not None, tp, settings):
        self._memory = TailMemory()
        self.tail = self._memory.tail
        self.context = context
        self.tp = tp
        self.settings = settings
        self.linger = settings.linger
        self.acks = settings.acks
        # Not methods: the garbage collector clears a partial, but neither a method nor a queue.
        self.expedite = partial(_expedite, self)
        self.wait = None if context._wait is None else partial(_wait_for, self)
        self.batch_max_size = context.batch_max_size

    def __dealloc__(self):
        cdef ProducerBatch batch = self._oldest
        if self._open is not None:
            take_tail_back(self._open)
        while batch is not None:            # a loop, as a long chain would free itself recursively
            self._oldest, batch.following = batch.following, None
            batch = self._oldest

    # Any thread

    cpdef AppendResult append(
        self, object timestamp_ms, object key, object value, object headers, object buffer=None
    ):
        """Write a record into the open batch, or into a new one in ``buffer`` or in free memory."""
        cdef HeldRecord held
        cdef tuple frozen = frozen_headers(headers)
        hold_record(&held, 0 if timestamp_ms is None else timestamp_ms, key, value, frozen)
        if timestamp_ms is None:
            held.record.timestamp_ms = NO_TIME
        try:
            return self.append_or_open_batch(&held.record, buffer, False)
        finally:
            release_record(&held)

    cpdef AppendResult append_to_open(
        self, object timestamp_ms, object key, object value, object headers
    ):
        """Write a record into the open batch, if that is not full; else None."""
        cdef HeldRecord held
        cdef tuple frozen = frozen_headers(headers)
        cdef ProducerBatch batch = self._open_batch()
        if batch is None or seen_full(batch):
            return None
        hold_record(&held, 0 if timestamp_ms is None else timestamp_ms, key, value, frozen)
        if timestamp_ms is None:
            held.record.timestamp_ms = NO_TIME
        try:
            return self._append_to_open(&held.record)
        finally:
            release_record(&held)

    cdef AppendResult _append_to_open(self, Record* record):
        """Returns None when no batch is open, or the open batch has no room."""
        cdef AppendContext context = self.context
        cdef AppendResult result = AppendResult.__new__(AppendResult)
        cdef bint full = False
        cdef char* next_place = NULL
        cdef Py_ssize_t nbytes = 0
        cdef FutureRecordMetadata future = append_record(
            self.tail, context.clock, record, &nbytes, &full, &next_place
        )
        if future is None:
            return None
        result.future, result.nbytes = future, nbytes
        result.batch_ready = result.wake_sender = full
        if full:
            self.batch_filled()
        return result

    cdef AppendResult append_or_open_batch(
        self, Record* record, PooledBuffer buffer, bint quietly
    ):
        """Try the open batch, unless it is closed for append, then open a new batch.

        Returns None if refused, retired or without memory.

        ``quietly``: the caller reports the queue and wakes the sender itself, before it returns.
        """
        cdef AppendContext context = self.context
        cdef AppendResult result
        cdef ProducerBatch batch = None
        cdef ProducerBatch filled = None
        cdef bint stamps = record.timestamp_ms == NO_TIME
        cdef Py_ssize_t opened, closings
        checked_payload(record)
        while True:
            opened, closings = self._opened, context.closings
            if self.retired or context.refuses():
                return None
            filled = self._open_batch()
            if filled is not None and not filled.closed_for_append:
                result = self._append_to_open(record)
                if result is not None:
                    return result
                if stamps:
                    record.timestamp_ms = NO_TIME
                filled = self._open_batch()
            if filled is not None and filled.closed_for_append:
                filled.sum_early()
            if batch is None:
                if buffer is None:
                    buffer = context.pool.take(max(context.batch_size, batch_bound(record)))
                    if buffer is None:
                        return None
                batch = self._new_batch(buffer)
            result = AppendResult.__new__(AppendResult)
            result.future = new_future()
            filled = self._open_batch()
            if self._push(batch, record, result, opened, closings, quietly) == PUSHED:
                self._notify_sender(result, filled, quietly)
                return result

    cdef ProducerBatch _new_batch(self, PooledBuffer buffer):
        cdef AppendContext context = self.context
        delivery = context._delivery_type(self.tp, self.expedite, context.callbacks, self.wait)
        cdef Py_ssize_t most = min(context.batch_max_size, self.batch_max_size, self.grows_to)
        codec = self.settings.codec
        return context._batch_type(
            buffer,
            self.tp,
            delivery,
            context._now(),
            write_limit=max(most, context.batch_size),
            full_size=context.batch_size,   # a larger record fills its batch at once
            compression=codec,
            compression_ratio=context._ratios.estimate(self.tp.topic) if codec else 1.0,
            pool=context.pool,
        )

    cdef int _push(
        self,
        ProducerBatch batch,
        Record* record,
        AppendResult result,
        Py_ssize_t opened,
        Py_ssize_t closings,
        bint quietly,
    ) except -1:
        """Queue a new batch with this record; CHANGED if another thread changed the queue."""
        cdef Py_ssize_t nbytes
        take_lock(&self.tail.lock)
        try:
            if self.retired or self._opened != opened or self.context.closings != closings:
                return CHANGED
            if record.timestamp_ms == NO_TIME:
                # Under the lock: of two threads the one that appends first has the earlier time.
                record.timestamp_ms = now_with_gil(self.context.clock)
            nbytes = take_record(batch, record)
            if nbytes == REFUSED:
                batch.refuse(record)
            if nbytes == NO_ROOM:
                raise AssertionError(f"a new batch of {self.tp} had no room for its first record")
            give_delivery(result.future, <void*>batch.delivery)
            describe_record(result.future, 0, record)
            self._admit(batch, quietly)
            self._link(batch)
            result.nbytes = nbytes
            result.batch_ready = has_filled(self.tail, nbytes)
            result.wake_sender = result.batch_ready or self._depth > 1
        finally:
            release_lock(&self.tail.lock)
        result.linger = self.linger
        return PUSHED

    cdef int _admit(self, ProducerBatch batch, bint quietly) except -1:
        """Register the batch for flush, the queue for the sender, before the batch is linked."""
        # If the sender checks immediately, it waits for the lock, which this thread holds, or for
        # the GIL: no Python code runs until the batch is linked.
        if not quietly:
            self.context._on_change(self)
        try:
            self.context._incomplete.add(batch)
        except MemoryError:     # a set that cannot grow keeps the new element nevertheless
            self.context._incomplete.discard(batch)     # else every flush would wait for it
            raise
        return 0

    cdef void _link(self, ProducerBatch batch) noexcept:
        """Link a batch at the end of the queue, and open it."""
        batch.following = None
        if self._youngest is None:
            self._oldest = batch
        else:
            self._youngest.following = batch
        self._youngest = batch
        self._depth += 1
        self._exchange(batch)

    cdef void _exchange(self, ProducerBatch batch) noexcept:
        """Make this batch, or none, the open one. The caller holds the lock."""
        # The queue's links hold the open batch as well, so nothing is freed here.
        if self._open is not None:
            take_tail_back(self._open)
        clear_tail(self.tail)
        self._open = batch
        if batch is not None:
            lend_tail(batch, self._memory)
            self.tail.delivery = <void*>batch.delivery
            self._opened += 1

    cdef int _notify_sender(
        self, AppendResult result, ProducerBatch filled, bint quietly
    ) except -1:
        """Wake the sender for a new batch. Offer the former open batch for compression."""
        cdef AppendContext context = self.context
        compress = None if context._compression is None else self.settings.compress
        try:
            if compress is not None and filled is not None:
                context._compression.offer(filled, compress)
            if quietly:
                pass
            elif result.wake_sender:
                context.wake()
            else:
                context._wake_within(self.linger)
        except BaseException:
            context.wake()      # a signal handler has raised, and the record is queued
            raise
        if compress is not None:
            context._compression.help()
        return 0

    cpdef void batch_filled(self) except *:
        """Report to the sender that a record has filled the open batch."""
        self.context._on_change(self)
        self.context.wake()

    def close_open_batch(self):
        """Take no more records into the open batch. When this returns, no append is under way."""
        take_lock(&self.tail.lock)
        self._exchange(None)
        self._opened += 1
        release_lock(&self.tail.lock)

    cdef ProducerBatch _open_batch(self):
        cdef ProducerBatch batch
        if KPROD_HAS_GIL:
            return self._open
        take_lock(&self.tail.lock)
        batch = self._open
        release_lock(&self.tail.lock)
        return batch

    @property
    def depth(self):
        return self._depth

    # The sender's thread, the only one that removes batches.

    cdef ProducerBatch _first(self):
        cdef ProducerBatch batch
        # With a GIL read without the lock: a bulk call can hold it for long and never changes the
        # list.
        if KPROD_HAS_GIL:
            return self._oldest
        take_lock(&self.tail.lock)
        batch = self._oldest
        release_lock(&self.tail.lock)
        return batch

    @property
    def oldest(self):
        return self._first()

    def head(self):
        """The oldest batch, and whether the sender should send it immediately."""
        cdef ProducerBatch batch = self._first()
        return batch, batch is not None and (self._depth > 1 or seen_full(batch))

    def has(self, ProducerBatch batch not None):
        """Whether ``batch`` is queued here."""
        cdef ProducerBatch other
        take_lock(&self.tail.lock)
        other = self._oldest
        while other is not None and other is not batch:
            other = other.following
        release_lock(&self.tail.lock)
        return other is not None

    def close_head(self):
        """End appends to the oldest batch, which is about to be taken."""
        cdef ProducerBatch batch
        take_lock(&self.tail.lock)
        batch = self._oldest
        if batch is not None:
            self._end(batch)
        release_lock(&self.tail.lock)
        if batch is None:
            raise IndexError("no batch is queued")
        if batch.drain_order is None:
            self._drained += 1
            batch.drain_order = (self._drained,)

    cdef void _end(self, ProducerBatch batch) noexcept:
        """End appends to ``batch``. The caller holds the lock."""
        if batch is self._open:
            self._exchange(None)
        batch.close_for_append()

    def take_head(self):
        """Remove the oldest batch, after ``close_head``."""
        cdef ProducerBatch batch
        take_lock(&self.tail.lock)
        batch = self._oldest
        self._unlink(batch)
        release_lock(&self.tail.lock)
        return batch

    cdef bint _unlink(self, ProducerBatch batch) noexcept:
        """Unlink ``batch`` at any position. False when not queued. The caller holds the lock."""
        cdef ProducerBatch before = None
        cdef ProducerBatch other = self._oldest
        while other is not None and other is not batch:
            before, other = other, other.following
        if other is None:
            return False
        if before is None:
            self._oldest = batch.following
        else:
            before.following = batch.following
        if batch is self._youngest:
            self._youngest = before
        batch.following = None
        self._depth -= 1
        return True

    def put_back(self, ProducerBatch batch not None):
        """Queue a taken batch again, in the order of first taking among others that came back."""
        cdef ProducerBatch before = None
        cdef ProducerBatch other
        order = batch.drain_order or ()
        take_lock(&self.tail.lock)
        other = self._oldest
        while other is not None and other.drain_order is not None and other.drain_order <= order:
            before, other = other, other.following
        batch.following = other
        if before is None:
            self._oldest = batch
        else:
            before.following = batch
        if other is None:
            self._youngest = batch
        self._depth += 1
        release_lock(&self.tail.lock)

    def remove(self, ProducerBatch batch not None):
        """Remove one batch at any position, if it is queued."""
        take_lock(&self.tail.lock)
        self._unlink(batch)
        release_lock(&self.tail.lock)

    def retire(self):
        """Retire the queue if it has no batch. Returns whether it is retired."""
        take_lock(&self.tail.lock)
        if self._oldest is None:
            self._exchange(None)
            self.retired = True
        release_lock(&self.tail.lock)
        return self.retired

    def take_expired(self, double created_before):
        """Remove the batches at the head that were created before a time, oldest first."""
        cdef list gone = []
        cdef ProducerBatch batch
        while True:
            take_lock(&self.tail.lock)
            batch = self._oldest
            if batch is None or batch.created_at > created_before:
                release_lock(&self.tail.lock)
                return gone
            self._end(batch)
            self._unlink(batch)
            release_lock(&self.tail.lock)
            gone.append(batch)

    def take_all(self):
        """Remove every batch."""
        return self.take_expired(float("inf"))
