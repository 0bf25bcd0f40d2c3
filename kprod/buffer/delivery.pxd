from libc.stdint cimport int64_t

from kprod_ext.futures cimport track, untrack
from kprod_ext.guarded cimport Guarded
from kprod_ext.shared cimport SharedFlag


cdef class BatchDelivery(Guarded):
    cdef readonly object tp
    cdef readonly SharedFlag done
    cdef public SharedFlag awaited
    cdef public SharedFlag is_watched
    cdef readonly SharedFlag has_listeners
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time
    cdef readonly object error
    cdef readonly SharedFlag is_split
    cdef readonly tuple parts
    cdef readonly object callbacks
    cdef public object wait_for
    cdef object _hurry
    cdef list _waiters
    cdef dict _tasks
    cdef bint _told
    cdef bint _telling
    cdef object _latch
    cdef public BatchDelivery _whole

    cpdef bint succeed(self, int64_t base_offset, int64_t append_time)
    cpdef bint fail(self, object error)
    cdef bint _settle(
        self, int64_t base_offset, int64_t append_time, object error, tuple parts=*
    ) except -1
    cdef void _tell_all(self) except *
    cdef void _tell_waiters(self) except *
    cdef void _end_telling(self) except *
    cpdef tuple locate(self, Py_ssize_t index)
    cpdef bint wait(self, object timeout) except -1
    cpdef bint wait_until_heard(self, double timeout) except -1
    cpdef bint wait_until_told(self, object timeout) except -1
    cpdef void hasten(self) except *
    cdef void _refuse_in_callback(self) except *
