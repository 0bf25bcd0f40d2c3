cdef class IncompleteBatches:
    cdef set _batches

    cpdef void add(self, object batch) except *
    cpdef void discard(self, object batch) except *
    cpdef list copy(self)
