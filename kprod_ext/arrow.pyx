# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Records from the columns of Arrow batches: no cell becomes a Python object.

More rows are read without the interpreter (``refill``), so that a batch of any length is written in
one go. Any object that exports Arrow's C interfaces in capsules can supply batches.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kprod_ext.record cimport Field, HEADER_LENGTHS, Record, batch_bound, surely_within
from kprod_ext.rows cimport RecordChunk, UNSET

# The structures of the Arrow C data and stream interfaces, declared from their specification.
#
# https://arrow.apache.org/docs/format/CDataInterface.html and .../CStreamInterface.html: an ABI
# that is frozen, so that no Arrow library is needed to read exported data.

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
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
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
    NO_MEMORY = -3          # instead of a size
    INLINE_BYTES = 12       # a view of so many bytes holds them itself
    VIEW_BYTES = 16


cdef struct Column:
    Kind kind
    Py_ssize_t width                # of FIXED_BYTES
    int64_t multiplier, divisor     # from an integer cell to the wanted unit
    const ArrowArray* array
    int64_t offset                  # of row 0


cdef inline bint has_broken_offsets(const Column* column, int64_t row) noexcept nogil:
    """Whether the offsets of a cell fall.

    Those of a null cell count, too: the next one begins where it ends. The size of the data is not
    exported, so offsets that rise are believed.
    """
    cdef int64_t i = column.offset + row
    cdef int64_t start, end
    if column.kind == SHORT_BYTES or column.kind == SHORT_LIST:
        start = (<const int32_t*>column.array.buffers[1])[i]
        end = (<const int32_t*>column.array.buffers[1])[i + 1]
    elif column.kind == LONG_BYTES or column.kind == LONG_LIST:
        start = (<const int64_t*>column.array.buffers[1])[i]
        end = (<const int64_t*>column.array.buffers[1])[i + 1]
    else:
        return False
    return not 0 <= start <= end


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef const uint8_t* valid
    cdef int64_t i = column.offset + row
    if column.kind == ABSENT:
        return True
    valid = <const uint8_t*>column.array.buffers[0]
    return valid != NULL and not (valid[i >> 3] >> (i & 7)) & 1


cdef inline bint is_inside(
    const ArrowArray* views, int32_t buffer, int32_t start, int32_t length
) noexcept nogil:
    """Whether a view names bytes of a data buffer. The last buffer has the sizes of those."""
    cdef const int64_t* sizes
    if not 0 <= buffer < views.n_buffers - 3:
        return False
    sizes = <const int64_t*>views.buffers[views.n_buffers - 1]
    return start >= 0 and <int64_t>start + length <= sizes[buffer]


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
            if not is_inside(column.array, buffer, start, length):
                field.size = BROKEN
                return
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
    """True when all cells are known to have at most ``largest`` bytes; for most kinds False."""
    cdef const int32_t* ends
    cdef int64_t i, size
    cdef bint outside = False
    if column.kind == ABSENT:
        return True
    if column.kind != SHORT_BYTES or has_nulls(column):
        return False
    ends = <const int32_t*>column.array.buffers[1] + column.offset
    outside = rows > 0 and ends[0] < 0
    for i in range(rows):
        size = <int64_t>ends[i + 1] - ends[i]
        outside |= (size < 0) | (size > largest)
    return not outside


@cython.cdivision(True)      # the dividend is not negative, the divisor positive
cdef inline int64_t read_integer(const Column* column, int64_t row) noexcept nogil:
    """The integer of a cell that is not null, in the wanted unit, rounded down.

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
    """The place of a cell's items; no items for null."""
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


cdef int is_utf8(const char* text, Py_ssize_t size) noexcept nogil:
    """Whether text is UTF-8; NO_MEMORY. Asks the interpreter, but for ASCII."""
    cdef Py_ssize_t i
    for i in range(size):
        if text[i] & 0x80:
            with gil:
                try:
                    PyUnicode_DecodeUTF8(text, size, NULL)
                except UnicodeDecodeError:
                    return False
                except MemoryError:
                    return NO_MEMORY
            break
    return True


cdef str TAKEN = "the exported data was taken before"

cdef dict KINDS = {
    "n": ABSENT, "z": SHORT_BYTES, "u": SHORT_BYTES, "Z": LONG_BYTES, "U": LONG_BYTES,
    "vz": VIEWED_BYTES, "vu": VIEWED_BYTES, "w": FIXED_BYTES, "i": INT32, "l": INT64, "ts": INT64,
    "+l": SHORT_LIST, "+m": SHORT_LIST, "+L": LONG_LIST,
}


@cython.final
cdef class ArrowSource:
    """One batch, or a stream of them. Owns the exported structures, and releases them."""

    # Each is released once: when it is replaced, or with this object. Zero: none exported.
    cdef ArrowSchema _schema
    cdef ArrowArray array           # the batch at hand
    cdef ArrowArrayStream _stream
    cdef bint _begun                # without a stream: the single batch was handed out

    def __cinit__(self, data):
        memset(&self._schema, 0, sizeof(ArrowSchema))
        memset(&self.array, 0, sizeof(ArrowArray))
        memset(&self._stream, 0, sizeof(ArrowArrayStream))
        if hasattr(data, "__arrow_c_array__"):
            self._take_array(data)
        elif hasattr(data, "__arrow_c_stream__"):
            self._take_stream(data)
        else:
            raise TypeError("no Arrow data")
        if self._schema.format == NULL or <bytes>self._schema.format != b"+s":
            raise TypeError("no columns")

    def __dealloc__(self):
        self._release_array()
        if self._schema.release != NULL:
            self._schema.release(&self._schema)
        if self._stream.release != NULL:
            self._stream.release(&self._stream)

    def columns(self):
        """(name, format, is dictionary-encoded, [the same of its children]) of every column."""
        return described_children(&self._schema)

    def next_batch(self):
        """Go on to the next batch. Returns its number of rows, or -1 after the last batch."""
        cdef ArrowArray array
        cdef int code
        if self._stream.release == NULL:
            if self._begun:
                return -1
            self._begun = True
            return self._judged()
        self._release_array()
        memset(&array, 0, sizeof(ArrowArray))
        # Without the GIL, as Arrow's own libraries call it. A reader may wait for threads of its
        # own, which run Python code: with the GIL held here each would wait for the other.
        with nogil:
            code = self._stream.get_next(&self._stream, &array)
        if code != 0:
            raise OSError(code, self._trouble())
        self.array = array
        return -1 if array.release == NULL else self._judged()

    def _judged(self):
        if self.array.n_children != self._schema.n_children or self.array.length < 0:
            raise ValueError("the batch does not fit its schema")
        refuse_short_columns(&self.array)
        return self.array.length

    def _trouble(self):
        cdef const char* text = self._stream.get_last_error(&self._stream)
        return "the stream failed" if text == NULL else text.decode("utf-8", "replace")

    cdef int _take_array(self, object data) except -1:
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        schema_capsule, array_capsule = data.__arrow_c_array__()
        schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release == NULL or array.release == NULL:
            raise TypeError(TAKEN)
        # Moved, as the specification says: a structure without a release callback owns nothing.
        self._schema = schema[0]
        schema.release = NULL
        self.array = array[0]
        array.release = NULL
        return 0

    cdef int _take_stream(self, object data) except -1:
        cdef ArrowArrayStream* stream
        cdef int code
        capsule = data.__arrow_c_stream__()
        stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
        if stream.release == NULL:
            raise TypeError(TAKEN)
        self._stream = stream[0]
        stream.release = NULL
        with nogil:                     # as in next_batch
            code = self._stream.get_schema(&self._stream, &self._schema)
        if code != 0:
            raise OSError(code, self._trouble())
        return 0

    cdef void _release_array(self) noexcept:
        if self.array.release != NULL:
            self.array.release(&self.array)
        self.array.release = NULL


cdef int refuse_short_columns(const ArrowArray* parent) except -1:
    """Raise ValueError for a struct with a column that has fewer cells than the struct itself."""
    cdef int64_t i
    for i in range(parent.n_children):
        if parent.children[i].length < parent.offset + parent.length:
            raise ValueError("a column has fewer cells than its batch has rows")
    return 0


cdef tuple described(ArrowSchema* schema):
    return (
        "" if schema.name == NULL else schema.name.decode("utf-8", "replace"),
        schema.format.decode("ascii", "replace"),
        schema.dictionary != NULL,
        described_children(schema),
    )


cdef list described_children(ArrowSchema* schema):
    cdef list found = []
    cdef int64_t i
    for i in range(schema.n_children):
        found.append(described(schema.children[i]))
    return found


@cython.final
cdef class ArrowChunk(RecordChunk):
    """Rows that belong to an Arrow batch."""

    cdef ArrowSource _source
    cdef Column _value, _key, _headers, _header, _header_name, _header_value, _partition, _timestamp
    cdef Column _whole              # the rows themselves: asked for nulls only
    cdef bint _has_more             # than keys and values
    cdef bint _has_nulls            # whether a whole row may be null
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

    def next_batch(self, int64_t largest):
        """Go on to the next batch, and check all its rows: (rows, the fault or None)."""
        cdef ArrowArray* batch = &self._source.array
        cdef int value, key, headers, partition, timestamp
        value, key, headers, partition, timestamp = self._numbers
        if self._source.next_batch() < 0:
            return None
        point(&self._value, batch, value)
        point(&self._key, batch, key)
        point(&self._headers, batch, headers)
        point(&self._partition, batch, partition)
        point(&self._timestamp, batch, timestamp)
        if headers >= 0:
            items = batch.children[headers].children[0]
            refuse_short_columns(items)
            self._header.array, self._header.offset = items, items.offset
            point(&self._header_name, items, 0)
            point(&self._header_value, items, 1)
        self._whole.array, self._whole.offset = batch, batch.offset
        self._has_nulls = batch.null_count != 0 and batch.buffers[0] != NULL
        self.forget_rows()
        self._next = 0
        self._size = -1
        self._rows = batch.length
        return batch.length, self._first_bad(largest)

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
        cdef int64_t plain = surely_within(<Py_ssize_t>largest)
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
            self.forget_rows()
        if self._size == NO_MEMORY:
            raise MemoryError("no memory for the headers of a record")
        return None if why == NULL else (row, why.decode(), self._size)

    cdef const char* _fault(self, int64_t row, int64_t plain, int64_t largest) noexcept nogil:
        """The fault of a row, if any. A row of up to ``plain`` bytes is never too large."""
        cdef Field key, value
        cdef int64_t number, size
        if self._has_nulls and is_null(&self._whole, row):
            return b"null"
        if has_broken_offsets(&self._key, row) or has_broken_offsets(&self._value, row):
            return b"broken"
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
            if number < 0:
                return b"timestamp"
        size = self._headers_size(row)
        if size == NO_MEMORY:
            self._size = NO_MEMORY
        if size < 0:
            return b"headers" if size == -1 else b"broken"
        if key.size <= plain and value.size <= plain:
            if max(key.size, 0) + max(value.size, 0) + size <= plain:
                return NULL
        self._size = self._batch_size(row)
        if 0 <= self._size <= largest:
            return NULL
        return b"size"

    cdef int64_t _headers_size(self, int64_t row) noexcept nogil:
        """Bytes of a row's headers at most; -1 when one is no header; BROKEN; NO_MEMORY.

        A header and its name are not null, and the name is UTF-8: Arrow does not check text that it
        makes of bytes without a copy.
        """
        cdef int64_t item, start, end
        cdef int64_t size = 0
        cdef Field name, value
        cdef int valid
        if self._headers.kind == ABSENT:
            return 0
        read_list(&self._headers, row, &start, &end)
        if has_broken_offsets(&self._headers, row) or end > self._header.array.length:
            return BROKEN
        for item in range(start, end):
            read_bytes(&self._header_name, item, &name)
            read_bytes(&self._header_value, item, &value)
            if is_null(&self._header, item) or name.size == UNSET:
                return -1
            if (
                has_broken_offsets(&self._header_name, item) or name.size < UNSET
                or has_broken_offsets(&self._header_value, item) or value.size < UNSET
            ):
                return BROKEN
            valid = is_utf8(name.data, name.size)
            if valid <= 0:
                return NO_MEMORY if valid == NO_MEMORY else -1
            # No sum overflows, however large a cell says it is.
            size += min(name.size, INT32_MAX) + min(max(value.size, 0), INT32_MAX) + HEADER_LENGTHS
        return size

    cdef int64_t _batch_size(self, int64_t row) noexcept nogil:
        """See batch_bound, for a row without other faults; NO_MEMORY for its headers."""
        cdef Record record
        self.forget_rows()
        if self._headers.kind != ABSENT and self._read_headers(0, row) < 0:
            return NO_MEMORY
        read_bytes(&self._key, row, &record.key)
        read_bytes(&self._value, row, &record.value)
        record.headers = self.headers
        record.header_count = self.header_fields // 2
        return batch_bound(&record)

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
                count = i       # no memory for the headers of later rows: see `left`
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
