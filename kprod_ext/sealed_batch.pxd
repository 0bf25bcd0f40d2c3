from kprod_ext.records_builder cimport MemoryRecordsBuilder


cdef class SealedBatch:
    cdef MemoryRecordsBuilder _builder
    cdef Py_buffer _lent            # of the builder's memory, which stays while this is here
    cdef readonly Py_ssize_t size

    cpdef list pieces(self)

    # For readers of the bytes that have no view of them: their address, NULL when they do not lie
    # in a row, once `finish` was called, which needs no interpreter. The caller keeps the batch
    # alive meanwhile.
    cdef char* data(self) noexcept nogil
    cdef void finish(self) noexcept nogil


cdef class SealedPiece:
    cdef SealedBatch batch
    cdef char* data                 # read after batch.finish()
    cdef readonly Py_ssize_t size
