# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Records from the columns of an Arrow batch: nothing of it becomes a Python object.

The bulk lane asks for more rows without holding the interpreter (``refill``), so that a batch of
any length is written in one go.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

from kprod_ext.arrow_abi cimport ArrowArray
from kprod_ext.arrow_column cimport (
    ABSENT,
    FIXED_BYTES,
    INT32,
    INT64,
    LONG_BYTES,
    LONG_LIST,
    SHORT_BYTES,
    SHORT_LIST,
    VIEWED_BYTES,
    Column,
    Kind,
    all_within,
    is_null,
    read_bytes,
    read_integer,
    read_list,
    read_many_bytes,
)
from kprod_ext.arrow_source cimport ArrowSource
from kprod_ext.batch_header cimport HEADER_SIZE
from kprod_ext.record_chunk cimport UNSET, RecordChunk
from kprod_ext.record_layout cimport RECORD_OVERHEAD, Field, Record, field_size, payload_size
from kprod_ext.varint cimport varint_size

cdef enum:
    HEADER_OVERHEAD = 10        # bytes that the two lengths of a header take at most
    LENGTHS = 15                # and those of key and value, and the number of headers

cdef dict KINDS = {
    "n": ABSENT, "z": SHORT_BYTES, "u": SHORT_BYTES, "Z": LONG_BYTES, "U": LONG_BYTES,
    "vz": VIEWED_BYTES, "vu": VIEWED_BYTES, "w": FIXED_BYTES, "i": INT32, "l": INT64, "ts": INT64,
    "+l": SHORT_LIST, "+m": SHORT_LIST, "+L": LONG_LIST,
}


@cython.final
cdef class ArrowChunk(RecordChunk):
    """Rows that belong to an Arrow batch."""

    cdef ArrowSource _source
    cdef Column _value, _key, _headers, _header, _header_name, _header_value, _partition, _timestamp
    cdef Column _whole              # the rows themselves: asked for nulls only
    cdef bint _has_more             # than keys and values
    cdef bint _has_nulls            # whether a row as a whole may be one
    cdef int64_t _next              # row of the batch that is read next
    cdef int64_t _rows
    cdef int64_t _size              # of a batch with the row that is too large
    cdef tuple _numbers
    cdef readonly int32_t largest_partition

    def __cinit__(
        self, Py_ssize_t capacity, ArrowSource source not None, int value, int key, int headers,
        int partition, int timestamp, int64_t multiplier, int64_t divisor
    ):
        cdef list columns = source.columns()
        if min(multiplier, divisor) < 1:
            raise ValueError("a unit of time is a positive number of others")
        self._source = source
        self._numbers = (value, key, headers, partition, timestamp)
        self.largest_partition = UNSET
        prepare(&self._value, columns, value)
        prepare(&self._key, columns, key)
        prepare(&self._headers, columns, headers)
        prepare(&self._partition, columns, partition)
        prepare(&self._timestamp, columns, timestamp)
        self._has_more = max(headers, partition, timestamp) >= 0
        self._timestamp.multiplier, self._timestamp.divisor = multiplier, divisor
        self._whole.kind = FIXED_BYTES
        if headers >= 0:
            self._header.kind = FIXED_BYTES     # asked for nulls only
            pair = columns[headers][3][0][3]
            prepare(&self._header_name, pair, 0)
            prepare(&self._header_value, pair, 1)

    def begin(self, int64_t largest):
        """Look at every row of the batch at hand, and begin to read it."""
        cdef ArrowArray* batch = &self._source.array
        cdef int value, key, headers, partition, timestamp
        value, key, headers, partition, timestamp = self._numbers
        point(&self._value, batch, value)
        point(&self._key, batch, key)
        point(&self._headers, batch, headers)
        point(&self._partition, batch, partition)
        point(&self._timestamp, batch, timestamp)
        if headers >= 0:
            items = batch.children[headers].children[0]
            self._header.array, self._header.offset = items, items.offset
            point(&self._header_name, items, 0)
            point(&self._header_value, items, 1)
        self._whole.array, self._whole.offset = batch, batch.offset
        self._has_nulls = batch.null_count != 0 and batch.buffers[0] != NULL
        self.forget_rows()
        self._next = 0
        self._size = -1
        self._rows = batch.length
        return self._first_bad(largest)

    @property
    def left(self):
        return self._rows - self._next

    def next_row(self):
        """Take the next record as Python objects."""
        cdef object place
        if self.at == self.count and not self.refill():
            return None
        place = self.partitions[self.at] if self.placed else UNSET
        timestamp_ms, key, value, headers = self.row()
        self.at += 1
        return (
            None if place == UNSET else place,
            timestamp_ms,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            headers,
        )

    cdef object _first_bad(self, int64_t largest):
        cdef int64_t row
        cdef int64_t plain = largest - HEADER_SIZE - RECORD_OVERHEAD - LENGTHS
        cdef const char* why = NULL
        with nogil:
            if self._has_more or self._has_nulls or not (
                all_within(&self._key, self._rows, plain // 2)
                and all_within(&self._value, self._rows, plain // 2)
            ):
                for row in range(self._rows):
                    why = self._fault(row, plain, largest)
                    if why != NULL:
                        break
        return None if why == NULL else (row, why.decode(), self._size)

    cdef const char* _fault(self, int64_t row, int64_t plain, int64_t largest) noexcept nogil:
        """What is wrong with a row. With up to ``plain`` bytes it is small enough in any case."""
        cdef Field key, value
        cdef int64_t number, size
        if self._has_nulls and is_null(&self._whole, row):
            return b"null"
        read_bytes(&self._key, row, &key)
        read_bytes(&self._value, row, &value)
        if key.size < UNSET or value.size < UNSET:
            return b"broken"
        if self._partition.kind != ABSENT and not is_null(&self._partition, row):
            number = read_integer(&self._partition, row)
            if not 0 <= number <= INT32_MAX:
                return b"partition"
            self.largest_partition = max(self.largest_partition, <int32_t>number)
        if self._timestamp.kind != ABSENT and not is_null(&self._timestamp, row):
            number = read_integer(&self._timestamp, row)
            if number < 0 or number == INT64_MAX:
                return b"timestamp"
        size = self._headers_size(row)
        if size < 0:
            return b"headers"
        if key.size <= plain and value.size <= plain:
            if max(key.size, 0) + max(value.size, 0) + size <= plain:
                return NULL
        self._size = self._batch_size(row)
        if 0 <= self._size <= largest:
            return NULL
        return b"size"

    cdef int64_t _headers_size(self, int64_t row) noexcept nogil:
        """Bytes of a row's headers at most; -1 when one or its name is null, or a size is none."""
        cdef int64_t item, start, end
        cdef int64_t size = 0
        cdef Field name, value
        if self._headers.kind == ABSENT:
            return 0
        read_list(&self._headers, row, &start, &end)
        for item in range(start, end):
            read_bytes(&self._header_name, item, &name)
            read_bytes(&self._header_value, item, &value)
            if is_null(&self._header, item) or name.size < 0 or value.size < UNSET:
                return -1
            # No sum overflows, however large a cell says it is.
            size += min(name.size, INT32_MAX) + min(max(value.size, 0), INT32_MAX) + HEADER_OVERHEAD
        return size

    cdef int64_t _batch_size(self, int64_t row) noexcept nogil:
        """Bytes of a batch with this one record at most; -1: more than the format allows.

        As ``batch_size_upper_bound`` has it, for a row without other faults.
        """
        cdef Record record
        cdef int64_t item, size
        cdef int64_t start = 0, end = 0
        cdef Field field[2]
        if self._headers.kind != ABSENT:
            read_list(&self._headers, row, &start, &end)
        read_bytes(&self._key, row, &record.key)
        read_bytes(&self._value, row, &record.value)
        record.header_count = 0
        size = payload_size(&record)
        if size < 0:
            return -1
        size += varint_size(end - start) - varint_size(0)
        for item in range(start, end):
            read_bytes(&self._header_name, item, &field[0])
            read_bytes(&self._header_value, item, &field[1])
            if field[0].size > INT32_MAX or field[1].size > INT32_MAX or size > INT32_MAX:
                return -1
            size += field_size(&field[0]) + field_size(&field[1])
        return HEADER_SIZE + RECORD_OVERHEAD + size if size <= INT32_MAX else -1

    cdef Py_ssize_t to_follow(self) noexcept nogil:
        return <Py_ssize_t>(self._rows - self._next)

    cdef bint refill(self) noexcept nogil:
        cdef Py_ssize_t count = <Py_ssize_t>min(<int64_t>self.capacity, self._rows - self._next)
        cdef Py_ssize_t i
        cdef int64_t row
        self.forget_rows()
        self.keyed = self._key.kind != ABSENT
        self.stamped = self._timestamp.kind != ABSENT
        self.placed = self._partition.kind != ABSENT
        read_many_bytes(&self._value, self._next, count, self.values)
        if self.keyed:
            read_many_bytes(&self._key, self._next, count, self.keys)
        for i in range(count if self._has_more else 0):
            row = self._next + i
            if self.placed:
                self.partitions[i] = UNSET
                if not is_null(&self._partition, row):
                    self.partitions[i] = <int32_t>read_integer(&self._partition, row)
            if self.stamped:
                self.timestamps[i] = UNSET
                if not is_null(&self._timestamp, row):
                    self.timestamps[i] = read_integer(&self._timestamp, row)
            if self._headers.kind != ABSENT and self._read_headers(i, row) < 0:
                count = i       # no memory for the headers of more: `left` tells if there is none
                break
        self._next += count
        self.count = count
        return count > 0

    cdef int _read_headers(self, Py_ssize_t i, int64_t row) noexcept nogil:
        cdef int64_t item, start, end
        cdef Field field
        read_list(&self._headers, row, &start, &end)
        for item in range(start, end):
            read_bytes(&self._header_name, item, &field)
            if self.add_header_field(field.data, field.size) < 0:
                return -1
            read_bytes(&self._header_value, item, &field)
            if self.add_header_field(field.data, field.size) < 0:
                return -1
        self.header_ends[i] = self.header_fields
        return 0


cdef int prepare(Column* column, list columns, int number) except -1:
    """Note how the cells of a column are read, from its format."""
    cdef str form
    column.kind = ABSENT
    column.multiplier = column.divisor = 1
    if number < 0:
        return 0
    form = columns[number][1]
    column.width = 0
    if form.startswith("w:"):
        column.width = int(form[2:])
        form = "w"
    elif form.startswith("ts"):
        form = "ts"
    if form not in KINDS or columns[number][2]:
        raise TypeError(f"cannot read the Arrow format {form!r}")
    column.kind = <Kind><int>KINDS[form]
    return 0


cdef void point(Column* column, ArrowArray* parent, int number) noexcept:
    """Let a column be that of a batch; a parent that is a slice slices its children."""
    if column.kind != ABSENT:
        column.array = parent.children[number]
        column.offset = parent.offset + column.array.offset
