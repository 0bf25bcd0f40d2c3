"""The structures of the Arrow C data and stream interfaces, declared from their specification.

https://arrow.apache.org/docs/format/CDataInterface.html and .../CStreamInterface.html: an ABI that
is frozen, so that no library of Arrow is needed to read what one exports.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kprod_ext.record cimport Field

# The structures of the Arrow C data and stream interfaces, declared from their specification.
#
# https://arrow.apache.org/docs/format/CDataInterface.html and .../CStreamInterface.html: an ABI
# that is frozen, so that no library of Arrow is needed to read what one exports.

cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data


cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
    const char* (*get_last_error)(ArrowArrayStream*) noexcept
    void (*release)(ArrowArrayStream*) noexcept
    void* private_data


# One cell of an Arrow array, by the formats of the C data interface.

cdef enum Kind:
    ABSENT                  # no such column, or one of nulls: every cell is null
    SHORT_BYTES             # 32-bit offsets
    LONG_BYTES              # 64-bit offsets
    VIEWED_BYTES
    FIXED_BYTES
    INT32
    INT64
    SHORT_LIST
    LONG_LIST

cdef enum:
    BROKEN = -2             # a size that no cell has
    INLINE_BYTES = 12       # a view of so many bytes holds them itself
    VIEW_BYTES = 16


cdef struct Column:
    Kind kind
    Py_ssize_t width                # of FIXED_BYTES
    int64_t multiplier, divisor     # from an integer cell to what is wanted
    const ArrowArray* array
    int64_t offset                  # of row 0


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef const uint8_t* valid
    cdef int64_t i = column.offset + row
    if column.kind == ABSENT:
        return True
    valid = <const uint8_t*>column.array.buffers[0]
    return valid != NULL and not (valid[i >> 3] >> (i & 7)) & 1


cdef inline void read_bytes(const Column* column, int64_t row, Field* field) noexcept nogil:
    """The bytes of a cell; a size of -1 for null."""
    cdef int64_t i = column.offset + row
    cdef int32_t length, buffer, start
    cdef const char* view
    field.data = NULL
    field.size = -1
    if is_null(column, row):
        return
    if column.kind == SHORT_BYTES:
        field.data = <const char*>column.array.buffers[2]
        start = (<const int32_t*>column.array.buffers[1])[i]
        field.size = (<const int32_t*>column.array.buffers[1])[i + 1] - start
        field.data += start
    elif column.kind == LONG_BYTES:
        field.data = <const char*>column.array.buffers[2]
        field.data += (<const int64_t*>column.array.buffers[1])[i]
        field.size = (
            (<const int64_t*>column.array.buffers[1])[i + 1]
            - (<const int64_t*>column.array.buffers[1])[i]
        )
    elif column.kind == VIEWED_BYTES:
        view = <const char*>column.array.buffers[1] + i * VIEW_BYTES
        memcpy(&length, view, 4)
        field.size = length
        field.data = view + 4
        if length > INLINE_BYTES:
            memcpy(&buffer, view + 8, 4)
            memcpy(&start, view + 12, 4)
            field.data = <const char*>column.array.buffers[2 + buffer] + start
    else:
        field.data = <const char*>column.array.buffers[1] + i * column.width
        field.size = column.width
    if field.size < 0:
        field.size = BROKEN


cdef inline bint has_nulls(const Column* column) noexcept nogil:
    return column.kind == ABSENT or column.array.buffers[0] != NULL


cdef inline void read_many_bytes(
    const Column* column, int64_t row, Py_ssize_t count, Field* fields
) noexcept nogil:
    """read_bytes for rows that follow each other."""
    cdef const char* data
    cdef const int32_t* ends
    cdef Py_ssize_t i
    if column.kind != SHORT_BYTES or has_nulls(column):
        for i in range(count):
            read_bytes(column, row + i, &fields[i])
        return
    data = <const char*>column.array.buffers[2]
    ends = <const int32_t*>column.array.buffers[1] + column.offset + row
    for i in range(count):
        fields[i].data = data + ends[i]
        fields[i].size = <Py_ssize_t>ends[i + 1] - ends[i]


cdef inline bint all_within(const Column* column, int64_t rows, Py_ssize_t largest) noexcept nogil:
    """Whether all cells are known to have a size up to ``largest``; of most kinds it is not."""
    cdef const int32_t* ends
    cdef int64_t i, size
    cdef bint outside = False
    if column.kind == ABSENT:
        return True
    if column.kind != SHORT_BYTES or has_nulls(column):
        return False
    ends = <const int32_t*>column.array.buffers[1] + column.offset
    for i in range(rows):
        size = <int64_t>ends[i + 1] - ends[i]
        outside |= (size < 0) | (size > largest)
    return not outside


@cython.cdivision(True)      # of what is not negative, by what is positive
cdef inline int64_t read_integer(const Column* column, int64_t row) noexcept nogil:
    """The integer of a cell that is not null, in the unit that is wanted; rounded down.

    -1 for a negative one, and for one that 64 bits cannot say in that unit.
    """
    cdef int64_t i = column.offset + row
    cdef int64_t value
    if column.kind == INT32:
        value = (<const int32_t*>column.array.buffers[1])[i]
    else:
        value = (<const int64_t*>column.array.buffers[1])[i]
    if value < 0 or value > INT64_MAX // column.multiplier:
        return -1
    return value * column.multiplier // column.divisor


cdef inline void read_list(
    const Column* column, int64_t row, int64_t* start, int64_t* end
) noexcept nogil:
    """Where the items of a cell are; none for null."""
    cdef int64_t i = column.offset + row
    start[0] = end[0] = 0
    if is_null(column, row):
        return
    if column.kind == SHORT_LIST:
        start[0] = (<const int32_t*>column.array.buffers[1])[i]
        end[0] = (<const int32_t*>column.array.buffers[1])[i + 1]
    else:
        start[0] = (<const int64_t*>column.array.buffers[1])[i]
        end[0] = (<const int64_t*>column.array.buffers[1])[i + 1]
