# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The clock of records, and the rules for their fields, for Python: compiled code inlines them.

The rules are about valid timestamps and partitions, immutable headers, the size up to which a
record always fits, and the partition of a key.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int64_t, uint32_t

cdef extern from *:
    """
    /* Ask the source. If it raises, return the latest time instead. */
    static long long kprod_ask(PyObject *source, long long latest) {
        PyObject *answer = PyObject_CallNoArgs(source);
        long long now = answer == NULL ? -1 : PyLong_AsLongLong(answer);
        Py_XDECREF(answer);
        if (now == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return latest;
        }
        return now;
    }
    """
    int64_t kprod_ask(object source, int64_t latest) noexcept


@cython.final
@cython.no_gc_clear     # as in record.pxd
cdef class RecordClock:
    """Milliseconds since the epoch, which do not go back while the system's clock is adjusted."""

    def __cinit__(self, source=None):
        if source is not None and not callable(source):
            raise TypeError(f"a source is called for the time, and {source!r} cannot be")
        self._source = source

    def wall_ms(self):
        """The time in milliseconds since the epoch."""
        return now_without_gil(self) if self._source is None else self.ask_source()

    cdef int64_t now(self) noexcept:
        if self._source is None:
            return now_without_gil(self)
        return kprod_hold(&self._latest, kprod_ask(self._source, self._latest))

    cdef int64_t ask_source(self) except? -1:
        return kprod_hold(&self._latest, <int64_t>self._source())


def is_timestamp(number, /):
    """Whether the object is an ``int`` within the range of timestamps."""
    return timestamp_of(number) >= 0


def is_partition(number, /):
    """Whether the object is an ``int`` within the range of partition numbers."""
    return partition_of(number) >= 0


def is_frozen(headers, /):
    """Whether headers are in the form to be written, which no thread can change."""
    return type(headers) is tuple and are_frozen(<tuple>headers)


def largest_payload(Py_ssize_t largest_batch, /):
    """Bytes of key, value and headers up to which a record always fits into such a batch."""
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
