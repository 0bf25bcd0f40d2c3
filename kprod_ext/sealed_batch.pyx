# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The bytes of a closed batch, whose checksum is made when they are first looked at.

To make it takes as long as all else that is done to a batch on its way out. So it is left to what
reads the batch anyway: the call that hands it to the socket, which does not hold the interpreter.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING

from kprod_ext.memory_block cimport Chunk, chunk_data
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
        cdef bytes copy
        if self.data() != NULL:
            self.finish()
            PyBuffer_FillInfo(view, self, self.data(), self.size, True, flags)
        else:
            copy = self._builder.copied()
            PyBuffer_FillInfo(view, copy, PyBytes_AS_STRING(copy), self.size, True, flags)

    cpdef list pieces(self):
        """The batch itself where it lies in a row, else a piece for each row."""
        cdef list found
        cdef Chunk* chunk = self._builder._buffer.chunks
        if self.data() != NULL:
            return [self]
        found = [piece_of(self, <char*>self._lent.buf, self._builder._first_used)]
        while chunk != NULL:
            found.append(piece_of(self, chunk_data(chunk), chunk.used))
            chunk = chunk.next
        return found

    @cython.nonecheck(False)
    cdef char* data(self) noexcept nogil:
        if self._builder._buffer.chunks != NULL and self.size > 0:
            return NULL
        return <char*>self._lent.buf

    @cython.nonecheck(False)
    cdef void finish(self) noexcept nogil:
        self._builder.finish_checksum()


@cython.final
@cython.no_gc           # as the batch, which does not refer to this
cdef class SealedPiece:
    """A part of a closed batch that lies in a row in memory."""

    def __cinit__(self, SealedBatch batch not None):
        self.batch = batch

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        self.batch.finish()
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


cdef SealedPiece piece_of(SealedBatch batch, char* data, Py_ssize_t size):
    cdef SealedPiece piece = SealedPiece.__new__(SealedPiece, batch)
    piece.data, piece.size = data, size
    return piece
