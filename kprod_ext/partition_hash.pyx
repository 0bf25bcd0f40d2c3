# cython: language_level=3, autotestdict=False
"""Python's door to the hash that picks the partition of a keyed record."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

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
