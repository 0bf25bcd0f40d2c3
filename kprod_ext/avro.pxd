"""Where encoded Avro goes, and how numbers and texts are written there"""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from kprod_ext.record cimport put_varint

cdef enum:
    LARGEST_NUMBER = 11         # bytes: the branch of a union and a long


cdef struct Output:
    char* start
    char* at
    char* end
    bint owned                  # the memory is on the heap


cdef inline int make_room(Output* out, Py_ssize_t size) except -1:
    return 0 if out.end - out.at >= size else grow(out, size)


cdef inline int grow(Output* out, Py_ssize_t size) except -1:
    cdef Py_ssize_t used = out.at - out.start
    cdef size_t capacity = <size_t>(2 * (used + size))
    cdef char* larger = <char*>PyMem_Realloc(out.start if out.owned else NULL, capacity)
    if larger == NULL:
        raise MemoryError(f"no memory for {used + size} bytes of Avro")
    if not out.owned:
        memcpy(larger, out.start, <size_t>used)
    out.start, out.at, out.end, out.owned = larger, larger + used, larger + capacity, True
    return 0


cdef inline int put_plain(Output* out, const char* data, Py_ssize_t size) except -1:
    """So many bytes as they are."""
    make_room(out, size)
    if size > 0:                # no bytes may have no address
        memcpy(out.at, data, <size_t>size)
    out.at += size
    return 0


cdef inline int put_bytes(Output* out, const char* data, Py_ssize_t size) except -1:
    """A length and so many bytes."""
    make_room(out, LARGEST_NUMBER + size)
    out.at = put_varint(out.at, size)
    return put_plain(out, data, size)


cdef inline void put_little_endian(Output* out, uint64_t bits, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        out.at[i] = <char>(bits >> (8 * i))
    out.at += size
