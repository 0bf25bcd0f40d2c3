"""A record's bytes, borrowed from Python objects for the time of one append.

Exact ``bytes`` cannot change and are alive as long as the caller's arguments: their address is
enough. Anything else lends its memory through the buffer protocol, and has it back as soon as the
record is written. Nothing is measured before everything is held, so no size can change between
measuring and writing.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.number cimport PyNumber_Index
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kprod_ext.record_layout cimport Field, Record

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    HEADERS_ON_STACK = 8        # more than most records carry; the rest goes to the heap


cdef struct HeldField:
    Py_buffer view
    bint viewed


cdef struct HeldRecord:
    Record record
    HeldField key
    HeldField value
    Field* headers_on_heap
    Field[2 * HEADERS_ON_STACK] headers_on_stack


cdef inline int64_t whole_number(object number) except? -1:
    """number as 64 bits. A float is a TypeError here, where Cython would cut it off in silence."""
    return number if PyLong_CheckExact(number) else PyNumber_Index(number)


cdef inline int hold_field(HeldField* held, Field* field, object data) except -1:
    """Borrow data: None or a C-contiguous buffer. Raises TypeError, BufferError, ValueError."""
    if data is None:
        field.data = NULL
        field.size = -1
    elif PyBytes_CheckExact(data):
        field.data = PyBytes_AS_STRING(data)
        field.size = PyBytes_GET_SIZE(data)
    else:
        PyObject_GetBuffer(data, &held.view, PyBUF_SIMPLE)
        held.viewed = True
        field.data = <const char*>held.view.buf
        field.size = held.view.len
    return 0


cdef inline int64_t timestamp_of(object number) noexcept:
    """A record's time, from 0 to 2**63 - 1 ms; -1 for what is no exact ``int`` in that range."""
    cdef int overflow = 0
    cdef int64_t value
    if not PyLong_CheckExact(number):
        return -1
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return value if overflow == 0 and value >= 0 else -1


cdef inline int32_t partition_of(object number) noexcept:
    """A partition, from 0 to 2**31 - 1; -1 for what is no exact ``int`` in that range."""
    cdef int64_t value = timestamp_of(number)
    return <int32_t>value if value <= INT32_MAX else -1


cdef inline bint is_name(object name) noexcept:
    """Whether a header can have that name: it is text that UTF-8 can say."""
    if type(name) is not str:
        return False
    try:
        return PyUnicode_AsUTF8AndSize(name, NULL) != NULL
    except UnicodeEncodeError:
        return False


cdef inline bint are_frozen(tuple headers) noexcept:
    """Whether each is a tuple of (str, bytes or None): nobody can change what is borrowed."""
    for header in headers:
        if type(header) is not tuple or len(<tuple>header) != 2:
            return False
        if not is_name((<tuple>header)[0]):
            return False
        if (<tuple>header)[1] is not None and type((<tuple>header)[1]) is not bytes:
            return False
    return True


cdef inline tuple frozen_headers(object headers):
    """Headers as a tuple. Raises TypeError for any that could change while they are borrowed."""
    cdef tuple frozen = tuple(headers)
    if not are_frozen(frozen):
        raise TypeError("headers must be (str, bytes or None) tuples, the names valid UTF-8")
    return frozen


cdef inline int hold_headers(HeldRecord* held, tuple headers) except -1:
    """Borrow the bytes of frozen headers. Raises MemoryError."""
    cdef Py_ssize_t count = len(headers)
    cdef Field* fields = held.headers_on_stack
    cdef Py_ssize_t i
    cdef tuple header
    if count > HEADERS_ON_STACK:
        fields = <Field*>PyMem_Malloc(<size_t>count * 2 * sizeof(Field))
        if fields == NULL:
            raise MemoryError(f"no memory for {count} headers")
        held.headers_on_heap = fields
    for i in range(count):
        header = <tuple>headers[i]
        fields[2 * i].data = PyUnicode_AsUTF8AndSize(header[0], &fields[2 * i].size)
        hold_field(NULL, &fields[2 * i + 1], header[1])     # bytes or None: no view to keep
    held.record.headers = fields
    held.record.header_count = count
    return 0


cdef inline void release_record(HeldRecord* held) noexcept:
    if held.key.viewed:
        PyBuffer_Release(&held.key.view)
    if held.value.viewed:
        PyBuffer_Release(&held.value.view)
    if held.headers_on_heap != NULL:
        PyMem_Free(held.headers_on_heap)


cdef inline int hold_record(
    HeldRecord* held, object timestamp_ms, object key, object value, tuple headers
) except -1:
    """Borrow a record's bytes; release_record must follow, unless this raised.

    The caller keeps key, value and the frozen headers alive until then.
    """
    held.key.viewed = held.value.viewed = False
    held.headers_on_heap = NULL
    held.record.timestamp_ms = whole_number(timestamp_ms)
    try:
        hold_field(&held.key, &held.record.key, key)
        hold_field(&held.value, &held.record.value, value)
        hold_headers(held, headers)
    except BaseException:
        release_record(held)
        raise
    return 0
