"""A block of records in memory, column by column, for a bulk call."""

from libc.stdint cimport int32_t, int64_t

from kprod_ext.record cimport Field, Record

cdef enum:
    UNSET = -1              # a timestamp: the time of writing; a partition: by the key, or sticky


cdef class RecordChunk:
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count          # rows in the arrays below
    cdef readonly Py_ssize_t at             # the row that is written next

    # Rows, column by column. Each column has room for `capacity` of them.
    cdef Field* values
    cdef Field* keys
    cdef int64_t* timestamps
    cdef int32_t* partitions
    cdef Py_ssize_t* header_ends            # where a row's headers end, and the next row's begin
    cdef bint keyed                         # whether the keys hold anything; else all are null
    cdef bint stamped                       # whether the timestamps do
    cdef bint placed                        # whether the partitions do
    cdef bint shared_headers                # every row has all headers
    cdef Field* headers                     # name, value, name, value ...
    cdef Py_ssize_t header_fields           # fields in `headers`
    cdef Py_ssize_t _header_room            # fields that fit in `headers`

    cdef void* _columns                     # one allocation for all columns but the headers

    # refill: load rows in place of those written; False at the end. to_follow: rows not loaded yet.
    cdef bint refill(self) noexcept nogil
    cdef Py_ssize_t to_follow(self) noexcept nogil

    cdef int add_header_field(self, const char* data, Py_ssize_t size) noexcept nogil
    cdef void forget_rows(self) noexcept nogil


cdef inline void read_row(RecordChunk chunk, Py_ssize_t row, Record* record) noexcept nogil:
    """The row as a record, with its timestamp as it is in the column."""
    cdef Py_ssize_t start = 0
    record.key.data = NULL
    record.key.size = -1
    if chunk.keyed:
        record.key = chunk.keys[row]
    record.value = chunk.values[row]
    record.timestamp_ms = chunk.timestamps[row] if chunk.stamped else UNSET
    record.headers = NULL
    record.header_count = 0
    if chunk.header_fields > 0:
        if chunk.shared_headers:
            record.headers = chunk.headers
            record.header_count = chunk.header_fields // 2
        else:
            start = chunk.header_ends[row - 1] if row > 0 else 0
            record.headers = chunk.headers + start
            record.header_count = (chunk.header_ends[row] - start) // 2
