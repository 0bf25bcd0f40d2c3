cimport cython
from libc.stdint cimport int64_t


@cython.no_gc           # refers to its batch's delivery, which lets go of its waiters when it ends
cdef class RecordFuture:
    cdef readonly object delivery
    cdef readonly Py_ssize_t index
    cdef readonly int64_t timestamp
    cdef readonly Py_ssize_t key_size
    cdef readonly Py_ssize_t value_size
    cdef readonly Py_ssize_t header_size
