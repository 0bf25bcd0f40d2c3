cimport cython


cdef class FrameReader:
    cdef Py_ssize_t _max_frame_bytes
    cdef object _partial

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, frames=list)
    cpdef list feed(self, object chunk)

    @cython.locals(at=Py_ssize_t, missing=Py_ssize_t)
    cdef Py_ssize_t _finish_partial(self, object view, list frames) except -1

    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _frame_size(self, object view, Py_ssize_t at) except -1
