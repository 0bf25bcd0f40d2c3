# cython: language_level=3, autotestdict=False
"""Python's door to the hashes that pick the partition of a keyed record."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

from kprod_ext.murmur2 cimport murmur2_hash


def murmur2(data, /):
    """Hash bytes as Kafka's default partitioner does; unsigned 32 bit."""
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        return murmur2_hash(
            <const unsigned char*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
        )
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return murmur2_hash(<const unsigned char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def fnv1a(data, /):
    """The 32-bit FNV-1a hash by Fowler, Noll and Vo; unsigned."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return fnv1a_hash(<const unsigned char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef uint32_t fnv1a_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t state = 0x811C9DC5
    cdef Py_ssize_t i
    for i in range(size):
        state = (state ^ data[i]) * <uint32_t>0x01000193
    return state
