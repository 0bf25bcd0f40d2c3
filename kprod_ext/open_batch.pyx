# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The end of a partition's queue that takes records: one lock, held for one record at a time.

Whoever writes into a batch does it through here, the compiled ``send`` and the Python lane alike,
so both make the same bytes and the same futures.
"""

cimport cython

from kprod_ext.held_record cimport HeldRecord, freeze_headers, hold_record, release_record
from kprod_ext.prefetch cimport CACHE_LINE, kprod_prefetch, kprod_prefetch_to_write
from kprod_ext.record_future cimport RecordFuture
from kprod_ext.record_layout cimport Record
from kprod_ext.record_lock cimport release_lock, take_lock
from kprod_ext.records_builder cimport MemoryRecordsBuilder

cdef extern from *:
    """
    /* A million kept futures would be walked by every full garbage collection, and they are in no
       cycle that outlives their batch: a delivery lets go of its waiters when it ends. */
    static PyObject *kprod_new_instance(PyTypeObject *kind, PyObject *no_arguments) {
        PyObject *made = kind->tp_new(kind, no_arguments, NULL);
        if (made != NULL && PyObject_IS_GC(made) && PyObject_GC_IsTracked(made)) {
            PyObject_GC_UnTrack(made);
        }
        return made;
    }
    """
    object kprod_new_instance(type kind, tuple no_arguments)

cdef tuple NO_ARGUMENTS = ()


@cython.final
cdef class OpenBatch:
    """The batch of one partition that takes records, if there is one."""

    def __cinit__(self, type future_type not None):
        if not issubclass(future_type, RecordFuture):
            raise TypeError("futures must be a subclass of RecordFuture")
        self._future_type = future_type

    cpdef void open(self, MemoryRecordsBuilder builder, object delivery) except *:
        """Take records into this batch from now on."""
        if builder is None or delivery is None:
            raise TypeError("a batch that takes records has a builder and a delivery")
        self._exchange(builder, delivery)

    cpdef void shut(self) except *:
        """Take no more records: when this returns, no append is under way."""
        self._exchange(None, None)

    cdef tuple _exchange(self, MemoryRecordsBuilder builder, object delivery):
        """What was there before: the caller drops it, for nothing may be freed under the lock."""
        cdef MemoryRecordsBuilder old_builder
        cdef object old_delivery
        take_lock(&self._lock)
        old_builder, old_delivery = self._builder, self._delivery
        self._builder, self._delivery = builder, delivery
        release_lock(&self._lock)
        return (old_builder, old_delivery)

    cdef tuple now_open(self):
        cdef MemoryRecordsBuilder builder
        cdef object delivery
        take_lock(&self._lock)
        builder, delivery = self._builder, self._delivery
        release_lock(&self._lock)
        return (builder, delivery)

    cdef void* builder_address(self) noexcept nogil:
        return NULL if self._builder is None else <void*>self._builder

    cdef void* delivery_address(self) noexcept nogil:
        return NULL if self._delivery is None else <void*>self._delivery

    cpdef tuple try_append(
        self, object timestamp_ms, object key, object value, object headers=()
    ):
        """(future, bytes, batch is full), or None when no batch is open or it has no room."""
        cdef HeldRecord held
        cdef Py_ssize_t nbytes = 0
        cdef bint full = False
        cdef tuple frozen = freeze_headers(headers)
        cdef RecordFuture future
        hold_record(&held, timestamp_ms, key, value, frozen)
        try:
            future = self.append(&held.record, &nbytes, &full)
        finally:
            release_record(&held)
        return None if future is None else (future, nbytes, full)

    cdef RecordFuture append(self, const Record* record, Py_ssize_t* nbytes, bint* full):
        cdef MemoryRecordsBuilder builder
        cdef object delivery
        cdef Py_ssize_t index
        take_lock(&self._lock)
        self._fetch_early()
        try:
            builder = self._builder
            delivery = self._delivery
            if builder is None:
                return None
            index = builder.record_count
            nbytes[0] = builder.try_append_record(record)
            full[0] = builder.full()
            self._buffer = <void*>builder._buffer
            self._tail = builder._buffer.data + builder._end
        finally:
            release_lock(&self._lock)
        if nbytes[0] == 0:
            return None
        return make_future(self._future_type, delivery, index, record)

    cdef void _fetch_early(self) noexcept nogil:
        """Ask for all that an append touches at once: with thousands of partitions in use nothing
        of it is in a cache, and each thing is found by way of the one before."""
        kprod_prefetch_to_write(self._tail)
        kprod_prefetch_to_write(self._tail + CACHE_LINE)
        kprod_prefetch_to_write(<char*><void*>self._builder)
        kprod_prefetch_to_write(<char*><void*>self._builder + CACHE_LINE)
        kprod_prefetch_to_write(<char*><void*>self._builder + 2 * CACHE_LINE)
        kprod_prefetch_to_write(<char*><void*>self._delivery)
        kprod_prefetch(self._buffer)


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
    cdef tuple frozen = freeze_headers(headers)
    cdef Py_ssize_t index, nbytes
    if future_type is None or builder is None:
        raise TypeError("a record needs a class for its future and a builder")
    index = builder.record_count
    hold_record(&held, timestamp_ms, key, value, frozen)
    try:
        nbytes = builder.try_append_record(&held.record)
        if nbytes == 0:
            return None
        return make_future(future_type, delivery, index, &held.record), nbytes
    finally:
        release_record(&held)


cdef RecordFuture make_future(
    type kind, object delivery, Py_ssize_t index, const Record* record
):
    """A future of ``kind``, by its ``tp_new`` alone: what ``__init__`` would do is done here."""
    cdef RecordFuture future = <RecordFuture>kprod_new_instance(kind, NO_ARGUMENTS)
    cdef Py_ssize_t i
    future.delivery = delivery
    future.index = index
    future.timestamp = record.timestamp_ms
    future.key_size = record.key.size
    future.value_size = record.value.size
    future.header_size = -1 if record.header_count == 0 else 0
    for i in range(2 * record.header_count):
        future.header_size += max(record.headers[i].size, 0)
    return future
