from libc.stdint cimport int32_t


cdef class Standing:
    cdef readonly Place place
    cdef readonly Standing before
    cdef readonly Standing after


cdef class Place:
    cdef readonly Standing first
    cdef readonly Standing last
    cdef readonly bint passing

    cpdef void join(self, Standing one) except *
    cpdef void leave(self, Standing one) except *


cdef class Post:
    cdef readonly int32_t node_id
    cdef readonly int acks
    cdef readonly Place due
    cdef readonly Place lingering
