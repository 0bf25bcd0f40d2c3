# cython: language_level=3, auto_pickle=False, autotestdict=False
"""LZ4 frames, made by functions of the lz4 library that are called where they lie in memory.

Through the lz4 package, which contains the library, every batch needs the interpreter before and
after it, and may have to wait for it. Called directly, several are compressed in a row without.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uintptr_t
from libc.string cimport memset


@cython.final
@cython.no_gc
cdef class Lz4Frames:
    """Makes frames of independent blocks of 64 KiB, without checksums."""

    def __cinit__(self, uintptr_t compress_frame, uintptr_t frame_bound, int level):
        if compress_frame == 0 or frame_bound == 0:
            raise ValueError("there is no function at address 0")
        self._compress = <Lz4Compress><void*>compress_frame
        self._bound = <Lz4Bound><void*>frame_bound
        memset(&self._preferences, 0, sizeof(Lz4Preferences))
        self._preferences.independent_blocks = 1
        self._preferences.level = level

    def __call__(self, records):
        """One frame."""
        return bytes(self.several([records])[0])

    def several(self, list records not None):
        """One frame for each of the records."""
        cdef size_t asked = <size_t>len(records) * sizeof(Piece)
        cdef Piece* pieces = <Piece*>PyMem_Malloc(asked)
        if pieces == NULL:
            raise MemoryError(f"the system has no {asked} bytes")
        try:
            return self._several(records, pieces)
        finally:
            PyMem_Free(pieces)

    cdef list _several(self, list records, Piece* pieces):
        """``pieces`` has room for each of them."""
        cdef Py_ssize_t held = 0
        cdef Py_ssize_t done, i
        cdef size_t start = 0
        cdef size_t room = 0
        cdef char* first
        cdef list found = []
        try:
            for records_of_one in records:
                PyObject_GetBuffer(records_of_one, &pieces[held].records, PyBUF_SIMPLE)
                held += 1
            for i in range(held):
                room += self._bound(<size_t>pieces[i].records.len, &self._preferences)
            frames = PyByteArray_FromStringAndSize(NULL, <Py_ssize_t>room)
            first = PyByteArray_AS_STRING(frames)
            with nogil:
                done = self._write(pieces, held, first, room)
            if done < held:
                size = pieces[done].records.len
                raise RuntimeError(f"the lz4 library could not compress {size} bytes")
        finally:
            for i in range(held):
                PyBuffer_Release(&pieces[i].records)
        view = memoryview(frames)
        for i in range(held):
            found.append(view[start:pieces[i].end])
            start = pieces[i].end
        return found

    cdef Py_ssize_t _write(
        self, Piece* pieces, Py_ssize_t count, char* frames, size_t room
    ) noexcept nogil:
        """How many frames there are now: fewer than ``count`` when the library fails."""
        cdef Py_ssize_t i
        cdef size_t end = 0
        cdef size_t length
        for i in range(count):
            length = self._compress(
                frames + end,
                room - end,
                pieces[i].records.buf,
                <size_t>pieces[i].records.len,
                &self._preferences,
            )
            if length > room - end:     # errors are numbers just below the largest there is
                return i
            end += length
            pieces[i].end = end
        return count
