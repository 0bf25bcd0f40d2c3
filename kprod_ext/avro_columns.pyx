# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Avro records from Arrow columns: none of their cells becomes a Python object.

The columns have one of five layouts of 64 bits, bits, or bytes with 64-bit offsets: whatever else a
column may be was cast before.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from kprod_ext.avro cimport (
    LARGEST_NUMBER,
    Output,
    make_room,
    put_bytes,
    put_little_endian,
    put_plain,
)
from kprod_ext.record cimport put_varint

cdef enum Layout:
    BITS
    INTEGERS                    # int64, written as zigzag varints
    FLOATS                      # float64, written in 4 bytes
    DOUBLES
    TEXTS                       # int64 offsets; written with their length
    PLAIN                       # the same, without

cdef dict LAYOUTS = {
    "bits": BITS, "integers": INTEGERS, "floats": FLOATS, "doubles": DOUBLES,
    "texts": TEXTS, "plain": PLAIN,
}


cdef struct Column:
    Layout layout
    int null_branch             # of a union; -1: it has none, or the type is no union
    int value_branch            # likewise
    int64_t offset              # of row 0
    const uint8_t* valid        # bits; NULL: no cell is null
    const char* values          # or offsets
    const char* data


cdef inline bint bit_of(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef int put_cell(Output* out, const Column* column, int64_t row) except -1:
    """Write a cell; nothing for a null that has no branch."""
    cdef int64_t i = column.offset + row
    cdef bint is_null = column.valid != NULL and not bit_of(column.valid, i)
    cdef const int64_t* ends
    cdef float narrow
    cdef uint32_t few_bits
    cdef int branch = column.null_branch if is_null else column.value_branch
    make_room(out, 2 * LARGEST_NUMBER)
    if branch >= 0:
        out.at = put_varint(out.at, branch)
    if is_null:
        return 0
    if column.layout == INTEGERS:
        out.at = put_varint(out.at, (<const int64_t*>column.values)[i])
    elif column.layout == DOUBLES:
        put_little_endian(out, (<const uint64_t*>column.values)[i], 8)
    elif column.layout == BITS:
        out.at[0] = bit_of(<const uint8_t*>column.values, i)
        out.at += 1
    elif column.layout == FLOATS:
        narrow = <float>(<const double*>column.values)[i]
        memcpy(&few_bits, &narrow, 4)
        put_little_endian(out, few_bits, 4)
    else:
        ends = <const int64_t*>column.values + i
        if column.layout == TEXTS:
            put_bytes(out, column.data + ends[0], ends[1] - ends[0])
        else:
            put_plain(out, column.data + ends[0], ends[1] - ends[0])
    return 0


def encode_columns(list fields not None, Py_ssize_t rows, bytes prefix not None):
    cdef Py_ssize_t count = len(fields), row, i
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef Column* columns = <Column*>PyMem_Calloc(<size_t>max(1, count), sizeof(Column))
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, 8 * (rows + 1))
    cdef int64_t end = 0
    cdef Output out
    out.start = out.at = out.end = NULL
    out.owned = True
    if columns == NULL:
        raise MemoryError(f"no memory for {count} columns")
    try:
        for i, (layout, null_branch, value_branch, offset, valid, values, data) in (
            enumerate(fields)
        ):
            columns[i].layout = LAYOUTS[layout]
            columns[i].null_branch = null_branch
            columns[i].value_branch = value_branch
            columns[i].offset = offset
            columns[i].valid = <const uint8_t*><uintptr_t>valid
            columns[i].values = <const char*><uintptr_t>values
            columns[i].data = <const char*><uintptr_t>data
        memcpy(PyBytes_AS_STRING(ends), &end, 8)
        for row in range(rows):
            put_plain(&out, PyBytes_AS_STRING(prefix), size)
            for i in range(count):
                put_cell(&out, &columns[i], row)
            end = out.at - out.start
            memcpy(PyBytes_AS_STRING(ends) + 8 * (row + 1), &end, 8)
        return ends, PyBytes_FromStringAndSize(out.start, out.at - out.start)
    finally:
        PyMem_Free(columns)
        PyMem_Free(out.start)
