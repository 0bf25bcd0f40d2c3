cdef class Doubts:
    cdef dict _held

    cpdef void add(self, object batch) except *
    cpdef bint discard(self, object batch) except -1
    cpdef list take(self, object tp)
