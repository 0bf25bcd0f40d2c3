cimport cython

from kprod_ext.arrow_abi cimport ArrowArray, ArrowArrayStream, ArrowSchema


@cython.final
cdef class ArrowSource:
    # Each is released once: when it is replaced, or with this object. Zero: there is none.
    cdef ArrowSchema _schema
    cdef ArrowArray array           # the batch at hand
    cdef ArrowArrayStream _stream
    cdef bint _begun                # the single batch there is without a stream was handed out

    cdef int _take_array(self, object data) except -1
    cdef int _take_stream(self, object data) except -1
    cdef void _release_array(self) noexcept
