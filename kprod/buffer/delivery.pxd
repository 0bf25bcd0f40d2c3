from libc.stdint cimport int64_t

from kprod.latch cimport Latch


cdef class BatchDelivery:
    cdef readonly object tp
    cdef readonly bint done
    cdef public bint awaited
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time
    cdef readonly object error
    cdef readonly object callbacks
    cdef public object wait_for
    cdef object _hurry
    cdef object _lock
    cdef list _waiters
    cdef dict _tasks
    cdef Latch _told
    cdef tuple _parts
    cdef public BatchDelivery _whole

    cpdef bint succeed(self, int64_t base_offset, int64_t append_time)
    cpdef bint fail(self, object error)
