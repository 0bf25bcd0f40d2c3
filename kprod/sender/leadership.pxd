cimport cython

from kprod_ext.shared cimport SharedFlag, SharedThread, SharedTime


cdef class SenderLeadership:
    cdef public object work
    cdef public SharedFlag wanted
    cdef object _network
    cdef object _clock
    cdef object _lock
    cdef SharedThread _leader
    cdef SharedFlag _free
    cdef SharedFlag _asked
    cdef SharedFlag _recalled
    cdef SharedTime _looks_again_at
    cdef object _wakeup
    cdef SharedFlag _woken
    cdef SharedFlag _worked
    cdef SharedTime _due

    cpdef void wake(self) except *
    cpdef void about_to_wait(self) except *
    cpdef void look_within(self, double seconds) except *

    @cython.locals(deadline=double)
    cpdef bint wait(self, object told, object timeout, bint hurry) except -1
    cdef bint _may_lead(self) except -1

    @cython.locals(me="unsigned long")
    cpdef bint _lead(self, object told, double deadline) except -1

    @cython.locals(left=double)
    cdef void _run(self, object work, object told, double deadline) except *
    cdef void _stop_leading(self, object work) except *
    cpdef void looks(self) noexcept
    cpdef void looks_again_at(self, double when) noexcept

    @cython.locals(me="unsigned long")
    cpdef void take(self) except *
    cpdef void give_up(self) except *
    cdef void _wake_thread(self) except *

    @cython.locals(now=double, quiet_since=double, left=double, woken=bint)
    cdef bint _rest(self) except -1
