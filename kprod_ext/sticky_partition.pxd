cimport cython

from kprod_ext.record_lock cimport RecordLock
from kprod_ext.shared cimport SharedFlag


cdef inline Py_ssize_t share_of(Py_ssize_t batch_size, bint batch_ready) noexcept nogil:
    """Bytes that a sticky partition gets: a batch if that is full then, else two (KIP-794)."""
    return batch_size if batch_ready else 2 * batch_size


@cython.final
@cython.no_gc           # refers to nothing
cdef class StickyPartition:
    cdef readonly Py_ssize_t partition
    cdef readonly SharedFlag spent
    cdef Py_ssize_t _produced
    cdef readonly Py_ssize_t batch_size
    cdef RecordLock _lock               # guards counting

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept
    cdef Py_ssize_t produced(self) noexcept
