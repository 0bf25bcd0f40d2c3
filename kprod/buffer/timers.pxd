cimport cython


cdef Py_ssize_t SLACK


cdef class Timers:
    cdef dict _times
    cdef object _line
    cdef list _heap
    cdef Py_ssize_t _number

    @cython.locals(known=tuple, entry=tuple)
    cpdef void set(self, object key, double when) except *

    @cython.locals(last=tuple)
    cdef void _queue(self, tuple entry, double when) except *

    @cython.locals(known=tuple)
    cpdef void set_at_latest(self, object key, double when) except *
    cpdef void discard(self, object key) except *

    @cython.locals(times=dict)
    cdef void _drop_stale(self) except *

    @cython.locals(entry=tuple)
    cpdef double first(self) except? -1.0

    @cython.locals(times=dict, heap=list, entry=tuple, other=tuple)
    cdef tuple _first(self)

    @cython.locals(entry=tuple)
    cpdef list take_due(self, double now)
