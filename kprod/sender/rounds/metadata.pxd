cimport cython


cdef class MetadataRound:
    cdef object _metadata
    cdef object _network
    cdef bint _allow_auto_create
    cdef double _rebootstrap_after
    cdef object _asking_since

    @cython.locals(wait=double, next_look=double)
    cpdef double run(self, double now) except? -1
    cdef double _look_for_answers(self, double now) except? -1
    cdef void _rebootstrap(self, object why, double now) except *
