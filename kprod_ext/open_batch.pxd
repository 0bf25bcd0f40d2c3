cimport cython

from kprod_ext.record_future cimport RecordFuture
from kprod_ext.record_layout cimport Record
from kprod_ext.record_lock cimport RecordLock
from kprod_ext.records_builder cimport MemoryRecordsBuilder


@cython.final
cdef class OpenBatch:
    cdef RecordLock _lock                   # guards all below, and writing into the builder
    cdef MemoryRecordsBuilder _builder      # None: nobody may append
    cdef object _delivery
    cdef void* _buffer                      # what the next append will touch, as far as is known:
    cdef char* _tail                        # to be fetched early, never to be followed
    cdef type _future_type

    cpdef void open(self, MemoryRecordsBuilder builder, object delivery) except *
    cpdef void shut(self) except *
    cpdef tuple try_append(
        self, object timestamp_ms, object key, object value, object headers=*
    )

    cdef tuple _exchange(self, MemoryRecordsBuilder builder, object delivery)
    cdef void _fetch_early(self) noexcept nogil

    # For who holds the lock: the two as addresses, NULL for None. And both, for who does not.
    cdef void* builder_address(self) noexcept nogil
    cdef void* delivery_address(self) noexcept nogil
    cdef tuple now_open(self)

    # A record from memory: its future, or None when it was not taken. nbytes and full are outputs.
    cdef RecordFuture append(self, const Record* record, Py_ssize_t* nbytes, bint* full)


cpdef tuple write_first(
    type future_type,
    MemoryRecordsBuilder builder,
    object delivery,
    object timestamp_ms,
    object key,
    object value,
    object headers=*,
)
