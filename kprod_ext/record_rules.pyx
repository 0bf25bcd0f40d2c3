# cython: language_level=3, autotestdict=False
"""The rules for the fields of records, for Python; compiled code has the same ones inline.

Which timestamps and partitions there are, which headers cannot change, how large a record may be
without a second look, and to which partition a key goes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, uint32_t
from libc.string cimport memcpy

from kprod_ext.record cimport are_frozen, partition_of, timestamp_of
from kprod_ext.record cimport murmur2_hash, partition_of_key
from kprod_ext.rows cimport UNSET, RecordChunk
from kprod_ext.record cimport Field, surely_within


def is_timestamp(number, /):
    """Whether it is an ``int`` that a record's time can be."""
    return timestamp_of(number) >= 0


def is_partition(number, /):
    """Whether it is an ``int`` that the number of a partition can be."""
    return partition_of(number) >= 0


def is_frozen(headers, /):
    """Whether headers are in the one form that is written, which nobody can change."""
    return type(headers) is tuple and are_frozen(<tuple>headers)


def largest_payload(Py_ssize_t largest_batch, /):
    """Bytes of key, value and headers with which a record surely fits into such a batch."""
    return surely_within(largest_batch)


def murmur2(data, /):
    """Hash bytes as Kafka's default partitioner does; unsigned 32 bit."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return murmur2_hash(<const unsigned char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def partition_for_key(key, Py_ssize_t partitions, /):
    """The partition of a key, as Kafka's default partitioner chooses it."""
    cdef Py_buffer view
    if not 0 < partitions <= INT32_MAX:
        raise ValueError(f"a topic has 1 to 2**31 - 1 partitions, not {partitions}")
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return partition_of_key(<const char*>view.buf, view.len, partitions)
    finally:
        PyBuffer_Release(&view)


def partitions_for_keys(RecordChunk chunk not None, Py_ssize_t rows, Py_ssize_t partitions, /):
    """The partitions of the next rows by their keys, as 32-bit integers; -1 without a key."""
    cdef Py_ssize_t at = 0
    cdef char* place
    if not 0 < partitions <= INT32_MAX:
        raise ValueError(f"a topic has 1 to 2**31 - 1 partitions, not {partitions}")
    if rows < 0:
        raise ValueError(f"there are {rows} rows")
    found = PyBytes_FromStringAndSize(NULL, rows * <Py_ssize_t>sizeof(int32_t))
    place = PyBytes_AS_STRING(found)
    with nogil:
        while at < rows and (chunk.at < chunk.count or chunk.refill()):
            at += place_keys(chunk, place + at * sizeof(int32_t), rows - at, partitions)
    if at < rows:
        raise ValueError(f"there are {at} rows, not {rows}")
    return found


cdef Py_ssize_t place_keys(
    RecordChunk chunk, char* place, Py_ssize_t room, Py_ssize_t partitions
) noexcept nogil:
    """The partitions of a chunk's next rows, as many as there is room for; how many those are."""
    cdef Py_ssize_t count = min(chunk.count - chunk.at, room)
    cdef Py_ssize_t i
    cdef int32_t partition
    cdef Field key
    for i in range(count):
        partition = UNSET
        key.size = -1
        if chunk.keyed:
            key = chunk.keys[chunk.at + i]
        if key.size >= 0:
            partition = <int32_t>partition_of_key(key.data, key.size, partitions)
        memcpy(place + i * sizeof(int32_t), &partition, sizeof(int32_t))
    chunk.at += count
    return count


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
