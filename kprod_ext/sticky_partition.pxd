cimport cython

from kprod_ext.record_lock cimport RecordLock
from kprod_ext.shared cimport SharedFlag


@cython.final
@cython.no_gc           # refers to nothing
cdef class StickyPartition:
    cdef readonly Py_ssize_t partition
    cdef readonly SharedFlag spent
    cdef Py_ssize_t _produced
    cdef Py_ssize_t _batch_size
    cdef RecordLock _lock               # guards counting

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept
    cdef Py_ssize_t bytes_left(self, bint batch_ready) noexcept
