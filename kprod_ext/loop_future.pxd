"""The fields of a record in a loop: no C methods, for a table of them takes eight bytes."""

cimport cython

from kprod_ext.futures cimport RecordFuture


@cython.no_gc
cdef class LoopFuture:
    cdef public RecordFuture native
    cdef public object _settling
    cdef public object _callback            # the first of them, and its context
    cdef public object _context
    cdef public list _more                  # pairs of the others
    cdef public object _cancel_message
    cdef public bint _asyncio_future_blocking
    cdef public bint is_cancelled
