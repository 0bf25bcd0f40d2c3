from kprod.buffer.batch cimport ProducerBatch


cdef class Doubts:
    cdef dict _held

    cpdef void add(self, ProducerBatch batch) except *
    cpdef bint discard(self, ProducerBatch batch) except -1
    cpdef list take(self, object tp)
