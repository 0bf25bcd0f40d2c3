cimport cython

from kprod.latch cimport Latch
from kprod_ext.shared cimport SharedFlag, SharedThread, SharedTime


cdef class Baton:
    cdef public object work
    cdef public SharedFlag wanted
    cdef object _network
    cdef object _clock
    cdef object _lock
    cdef SharedThread _holder
    cdef SharedFlag _free
    cdef SharedFlag _asked
    cdef SharedFlag _recalled
    cdef SharedTime _looks_again_at
    cdef object _rest

    cpdef void wake(self) except *
    cpdef void about_to_wait(self) except *
    cpdef void look_within(self, double seconds) except *

    @cython.locals(deadline=double)
    cpdef bint wait(self, Latch told, object timeout, bint hurry) except -1
    cdef bint _may_take_turns(self) except -1

    @cython.locals(me="unsigned long")
    cpdef bint _take_turns(self, Latch told, double deadline) except -1

    @cython.locals(left=double)
    cdef void _turns(self, object work, Latch told, double deadline) except *
    cdef void _lay_down(self, object work) except *
    cpdef void looks(self) noexcept
    cpdef void looks_again_at(self, double when) noexcept

    @cython.locals(me="unsigned long")
    cpdef void take(self) except *
    cpdef void lay_down(self) except *
