cimport cython


@cython.final
@cython.no_gc           # refers to nothing
cdef class StickyPartition:
    cdef readonly Py_ssize_t partition
    cdef readonly bint spent
    cdef Py_ssize_t _produced
    cdef Py_ssize_t _batch_size
    cdef cython.pymutex _lock           # guards counting

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept
