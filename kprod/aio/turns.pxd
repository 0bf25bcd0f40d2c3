cdef class Turns:
    cdef Py_ssize_t _admitted
    cdef bint _ending
    cdef double _ends_at
    cdef object _row

    cpdef bint admit(self) except -1
    cdef bint _looks(self) except -1
    cdef void _begin(self) except *
    cpdef void spend(self) except *
