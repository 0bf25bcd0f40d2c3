# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The end of a partition's queue that takes records, and the share of a sticky partition (KIP-794).

Every record is written into a batch through here, by the compiled ``send`` and by Python alike, so
both make the same bytes and the same futures.
"""

cimport cython
from libc.stdint cimport int32_t, uintptr_t

from kprod_ext.batch cimport (
    BatchTail,
    MemoryRecordsBuilder,
    NO_ROOM,
    clear_tail,
    has_own_tail,
    lend_tail,
    take_tail_back,
)
from kprod_ext.futures cimport RecordFuture, give_delivery, is_bare, new_future
from kprod_ext.record cimport (
    CACHE_LINE,
    HeldRecord,
    NO_TIME,
    frozen_headers,
    hold_record,
    release_record,
)
from kprod_ext.record_clock cimport RecordClock
from kprod_ext.shared cimport release_lock, take_lock

# The partition that records without a key go to, until it has had its share (KIP-794).


@cython.final
cdef class StickyPartition:
    """One partition, and the bytes it got since it was chosen."""

    def __cinit__(self, Py_ssize_t partition, Py_ssize_t batch_size):
        if partition < 0 or batch_size < 1:
            raise ValueError(f"no such partition or batch size: {partition}, {batch_size}")
        self.partition = partition
        self.batch_size = batch_size

    def add(self, Py_ssize_t nbytes, bint batch_ready):
        """Count a record of nbytes; whether the partition has had its share now."""
        return self.count(nbytes, batch_ready)

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept:
        take_lock(&self._lock)
        self._produced += nbytes
        if self._produced >= share_of(self.batch_size, batch_ready):
            self.spent = True
        release_lock(&self._lock)
        return self.spent

    cdef Py_ssize_t produced(self) noexcept:
        """Bytes that it got until now."""
        cdef Py_ssize_t produced
        take_lock(&self._lock)
        produced = self._produced
        release_lock(&self._lock)
        return produced


@cython.final
@cython.no_gc_clear     # here as well: of a declaration's alone Cython 3.3 takes no notice
cdef class PartitionAppender:
    """The batch of one partition that takes records, if there is one."""

    def __cinit__(self, type future_type not None, RecordClock clock=None):
        if not issubclass(future_type, RecordFuture):
            raise TypeError("futures must be a subclass of RecordFuture")
        self.future_type = future_type
        self.clock = RecordClock() if clock is None else clock
        self.bare = is_bare(future_type)
        self.tail = <BatchTail*>(
            (<uintptr_t>&self._room[0] + CACHE_LINE - 1) & ~<uintptr_t>(CACHE_LINE - 1)
        )
        clear_tail(self.tail)

    def __dealloc__(self):
        if self._builder is not None:
            take_tail_back(self._builder)

    cpdef void open(self, MemoryRecordsBuilder builder, object delivery) except *:
        """Take records into this batch from now on."""
        if builder is None or delivery is None:
            raise TypeError("a batch that takes records has a builder and a delivery")
        if not (has_own_tail(builder) or builder is self._builder):
            raise ValueError("the builder is open elsewhere")
        self._exchange(builder, delivery)

    cpdef void shut(self) except *:
        """Take no more records: when this returns, no append is under way."""
        self._exchange(None, None)

    cdef tuple _exchange(self, MemoryRecordsBuilder builder, object delivery):
        """What was there before: the caller drops it, for nothing may be freed under the lock."""
        cdef MemoryRecordsBuilder old_builder
        cdef object old_delivery
        take_lock(&self.tail.lock)
        old_builder, old_delivery = self._builder, self._delivery
        if old_builder is not None:
            take_tail_back(old_builder)
        clear_tail(self.tail)
        self._builder, self._delivery = builder, delivery
        if builder is not None:
            lend_tail(builder, self.tail)
            self.tail.delivery = <void*>delivery
        release_lock(&self.tail.lock)
        return (old_builder, old_delivery)

    cdef object now_open(self, Py_ssize_t* records):
        cdef object delivery
        take_lock(&self.tail.lock)
        delivery = self._delivery
        records[0] = self.tail.record_count
        release_lock(&self.tail.lock)
        return delivery

    cdef void* builder_address(self) noexcept nogil:
        return NULL if self._builder is None else <void*>self._builder

    cdef void* delivery_address(self) noexcept nogil:
        return NULL if self._delivery is None else <void*>self._delivery

    cpdef RecordFuture try_append(
        self, object timestamp_ms, object key, object value, object headers=()
    ):
        """The future, or None when no batch is open or it has no room.

        No tuple with what else there is to tell: there might be no memory for it, and the record is
        in its batch by then.
        """
        cdef HeldRecord held
        cdef Py_ssize_t nbytes = 0
        cdef bint full = False
        cdef char* next_place = NULL
        cdef tuple frozen = frozen_headers(headers)
        cdef RecordFuture future
        hold_record(&held, 0 if timestamp_ms is None else timestamp_ms, key, value, frozen)
        if timestamp_ms is None:
            held.record.timestamp_ms = NO_TIME
        try:
            future = append_record(
                self.tail,
                self.clock,
                self.future_type,
                self.bare,
                &held.record,
                &nbytes,
                &full,
                &next_place,
            )
        finally:
            release_record(&held)
        if future is not None:
            self.last_bytes, self.last_full = nbytes, full
        return future


cpdef tuple write_first(
    type future_type,
    MemoryRecordsBuilder builder,
    object delivery,
    object timestamp_ms,
    object key,
    object value,
    object headers=(),
):
    """Write a record into a batch nobody else knows yet: (future, bytes), or None without room."""
    cdef HeldRecord held
    cdef tuple frozen = frozen_headers(headers)
    cdef int32_t index
    cdef Py_ssize_t nbytes
    cdef RecordFuture future
    if future_type is None or builder is None:
        raise TypeError("a record needs a class for its future and a builder")
    index = builder._tail.record_count
    hold_record(&held, timestamp_ms, key, value, frozen)
    try:
        nbytes = builder.try_append_record(&held.record)
        if nbytes == NO_ROOM:
            return None
        future = new_future(future_type, is_bare(future_type))
        give_delivery(future, <void*>delivery)
        describe_record(future, index, &held.record)
        return future, nbytes
    finally:
        release_record(&held)
