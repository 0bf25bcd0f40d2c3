# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The fields of a record's future, and which objects the garbage collector walks over.

RecordFuture is made to be subclassed: only that a future exists, once per record, is compiled.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

# Which objects the garbage collector walks over: not those that cannot be part of a ring.

cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(object one)
    void PyObject_GC_Track(object one)
    void PyObject_GC_UnTrack(object one)


cpdef void untrack(object one) noexcept:
    """Let the collector pass over an object."""
    PyObject_GC_UnTrack(one)


cpdef void track(object one) noexcept:
    """Let the collector see an object again."""
    if not PyObject_GC_IsTracked(one):
        PyObject_GC_Track(one)


@cython.no_gc
cdef class RecordFuture:
    """The place of one record in the batch whose ``delivery`` tells its outcome."""

    def __init__(
        self,
        delivery,
        int32_t index,
        int64_t timestamp,
        int32_t key_size,
        int32_t value_size,
        int32_t header_size,
    ):
        self.delivery = delivery
        self.index = index
        self.timestamp = timestamp
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size
