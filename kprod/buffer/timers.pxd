cdef class Timers:
    cdef dict _times
    cdef list _heap
    cdef Py_ssize_t _number

    cpdef void set(self, object key, double when) except *
    cpdef void set_at_latest(self, object key, double when) except *
    cpdef void discard(self, object key) except *
    cpdef double first(self) except? -1.0
    cpdef list take_due(self, double now)
