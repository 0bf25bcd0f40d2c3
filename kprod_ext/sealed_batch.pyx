# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The bytes of a closed batch, whose checksum is made when they are first looked at.

To make it takes as long as all else that is done to a batch on its way out. So it is left to who
reads the batch anyway: the call that hands it to the socket, which does not hold the interpreter.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer

from kprod_ext.records_builder cimport MemoryRecordsBuilder


@cython.final
@cython.no_gc           # as the builder, which does not refer to this
cdef class SealedBatch:
    """Read-only bytes, as soon as somebody asks for a view of them."""

    def __cinit__(self, MemoryRecordsBuilder builder not None):
        if not builder.is_closed:
            raise RuntimeError("the batch is not closed")
        PyObject_GetBuffer(builder._buffer, &self._lent, PyBUF_SIMPLE)
        self._builder = builder
        self.size = builder._tail.end if builder._tail.record_count > 0 else 0

    def __dealloc__(self):
        PyBuffer_Release(&self._lent)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        self.finish()
        PyBuffer_FillInfo(view, self, self.data(), self.size, True, flags)

    cdef char* data(self) noexcept nogil:
        return <char*>self._lent.buf

    @cython.nonecheck(False)
    cdef void finish(self) noexcept nogil:
        self._builder.finish_checksum()
