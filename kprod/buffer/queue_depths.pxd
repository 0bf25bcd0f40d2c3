from kprod.buffer.batch_queue cimport BatchQueue


cdef class QueueDepths:
    cdef dict _known
    cdef dict _changed
    cdef object _told

    cpdef void see(self, BatchQueue queue) except *
    cpdef void forget(self, BatchQueue queue) except *
    cpdef object of(self, object measured)
