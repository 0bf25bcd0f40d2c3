from kprod_ext.shared cimport SharedFlag


cdef class Latch:
    cdef readonly SharedFlag is_open
    cdef object _lock
    cdef tuple _bells

    cpdef void open(self) except *
    cpdef bint wait(self, object timeout=*) except *
    cdef object _wait(self, object timeout)
