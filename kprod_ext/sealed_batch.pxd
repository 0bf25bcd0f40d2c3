from kprod_ext.records_builder cimport MemoryRecordsBuilder


cdef class SealedBatch:
    cdef MemoryRecordsBuilder _builder
    cdef Py_buffer _lent            # of the builder's memory, which stays while this is here
    cdef readonly Py_ssize_t size

    # For who reads the bytes without a view of them: their address, once `finish` was called, which
    # needs no interpreter. The caller keeps the batch alive meanwhile.
    cdef char* data(self) noexcept nogil
    cdef void finish(self) noexcept nogil
