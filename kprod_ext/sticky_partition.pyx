# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The partition that records without a key go to, until it has had its share (KIP-794)."""

cimport cython

from kprod_ext.record_lock cimport release_lock, take_lock


@cython.final
cdef class StickyPartition:
    """One partition, and the bytes it got since it was chosen."""

    def __cinit__(self, Py_ssize_t partition, Py_ssize_t batch_size):
        if partition < 0 or batch_size < 1:
            raise ValueError(f"no such partition or batch size: {partition}, {batch_size}")
        self.partition = partition
        self.batch_size = batch_size

    def add(self, Py_ssize_t nbytes, bint batch_ready):
        """Count a record of nbytes; whether the partition has had its share now."""
        return self.count(nbytes, batch_ready)

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept:
        take_lock(&self._lock)
        self._produced += nbytes
        if self._produced >= share_of(self.batch_size, batch_ready):
            self.spent = True
        release_lock(&self._lock)
        return self.spent

    cdef Py_ssize_t produced(self) noexcept:
        """Bytes that it got until now."""
        cdef Py_ssize_t produced
        take_lock(&self._lock)
        produced = self._produced
        release_lock(&self._lock)
        return produced
