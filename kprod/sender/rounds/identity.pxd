from kprod.sender.sequences cimport Sequences


cdef class IdentityRound:
    cdef Sequences _sequences
    cdef object _network
    cdef object _backoff
    cdef bint _in_flight
    cdef Py_ssize_t _failures
    cdef double _retry_at

    cpdef double run(self, double now) except? -1
