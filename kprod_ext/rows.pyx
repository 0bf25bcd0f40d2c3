# cython: language_level=3, auto_pickle=False, autotestdict=False
"""A block of records in memory, column by column, for a bulk call."""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_RawFree, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.string cimport memcpy

from kprod_ext.record cimport (
    Field,
    HEADER_LENGTHS,
    Record,
    partition_of,
    partition_of_key,
    timestamp_of,
)
from kprod_ext.shared cimport KPROD_HAS_GIL

cdef extern from "Python.h":
    enum: PyBUF_READ

cdef enum:
    LARGEST_CAPACITY = 1 << 20
    FIRST_HEADER_ROOM = 16


cdef class RecordChunk:
    """Rows that are being written; ``at`` is the next."""

    def __cinit__(self, Py_ssize_t capacity, *arguments, **options):
        cdef size_t row = (
            2 * sizeof(Field) + sizeof(int64_t) + sizeof(int32_t) + sizeof(Py_ssize_t)
        )
        if not 0 < capacity <= LARGEST_CAPACITY:
            raise ValueError(f"capacity must be 1 to {LARGEST_CAPACITY}, got {capacity}")
        self._columns = PyMem_Malloc(<size_t>capacity * row)
        if self._columns == NULL:
            raise MemoryError(f"no memory for {capacity} records")
        self.capacity = capacity
        # Widest first, so that each is aligned as its type wants it.
        self.values = <Field*>self._columns
        self.keys = self.values + capacity
        self.timestamps = <int64_t*>(self.keys + capacity)
        self.header_ends = <Py_ssize_t*>(self.timestamps + capacity)
        self.partitions = <int32_t*>(self.header_ends + capacity)

    def __dealloc__(self):
        PyMem_Free(self._columns)
        PyMem_RawFree(self.headers)

    @property
    def to_come(self):
        return self.count - self.at + self.to_follow()

    def row(self):
        """The next record: (timestamp or None, key, value, headers); its buffers are borrowed."""
        cdef Record record
        cdef list headers = []
        cdef Py_ssize_t i
        if self.at >= self.count:
            raise IndexError("no record is left")
        read_row(self, self.at, &record)
        for i in range(record.header_count):
            headers.append((
                str(lent(&record.headers[2 * i]), "utf-8"),
                bytes_of(&record.headers[2 * i + 1]),
            ))
        return (
            None if record.timestamp_ms == UNSET else record.timestamp_ms,
            lent(&record.key),
            lent(&record.value),
            tuple(headers),
        )

    cdef bint refill(self) noexcept nogil:
        return False

    cdef Py_ssize_t to_follow(self) noexcept nogil:
        return 0

    cdef int add_header_field(self, const char* data, Py_ssize_t size) noexcept nogil:
        """Add to the headers of the row that is being filled; -1 without memory."""
        cdef Py_ssize_t room = self._header_room
        cdef void* moved
        if self.header_fields == room:
            room = 2 * room if room > 0 else FIRST_HEADER_ROOM
            moved = PyMem_RawRealloc(self.headers, <size_t>room * sizeof(Field))
            if moved == NULL:
                return -1
            self.headers = <Field*>moved
            self._header_room = room
        self.headers[self.header_fields].data = data
        self.headers[self.header_fields].size = size
        self.header_fields += 1
        return 0

    cdef void forget_rows(self) noexcept nogil:
        self.at = self.count = self.header_fields = 0
        self.keyed = self.stamped = self.placed = self.shared_headers = False


cdef object lent(const Field* field):
    """A view of a field, None for null. The caller of row() lets go of it before the chunk does."""
    if field.size < 0:
        return None
    if field.size == 0:
        return b""
    return PyMemoryView_FromMemory(<char*>field.data, field.size, PyBUF_READ)


cdef object bytes_of(const Field* field):
    return None if field.size < 0 else (field.data[:field.size] if field.size > 0 else b"")


# A block of records from Python objects: the addresses of their bytes, column by column.

# Declared for borrowed references: counting a reference needs the GIL, and writes to the object.
cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item
    PyObject* Py_None
    bint is_bytes "PyBytes_CheckExact" (PyObject* data) noexcept nogil
    char* bytes_at "PyBytes_AS_STRING" (PyObject* data) noexcept nogil
    Py_ssize_t bytes_size "PyBytes_GET_SIZE" (PyObject* data) noexcept nogil
    bint is_tuple "PyTuple_CheckExact" (PyObject* item) noexcept nogil
    Py_ssize_t tuple_size "PyTuple_GET_SIZE" (PyObject* item) noexcept nogil
    PyObject* tuple_item "PyTuple_GET_ITEM" (PyObject* item, Py_ssize_t at) noexcept nogil


def all_plain(list values not None, list keys, Py_ssize_t largest):
    """Whether every value and key is bytes or None, or a pair of them, and small enough."""
    cdef Field value, key
    cdef Plain plain
    if not KPROD_HAS_GIL:               # another thread may change the lists meanwhile
        values, keys = values[:], None if keys is None else keys[:]
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
    begin_plain(&plain, values, keys, largest)
    return read_plain(&plain, plain.count, &value, &key, 0) == plain.count


cdef struct Plain:              # lists, and which of their rows are plain
    PyObject** values
    PyObject** keys             # NULL: a value that is a pair has its key
    Py_ssize_t count
    Py_ssize_t largest          # bytes of key and value of a plain row
    bint keyed                  # whether a row that was read has a key


cdef int begin_plain(Plain* plain, list values, list keys, Py_ssize_t largest) except -1:
    """The lists must not change as long as they are read."""
    plain.values = (<PyListObject*>values).ob_item
    plain.keys = NULL
    plain.count = len(values)
    plain.largest = largest
    plain.keyed = False
    if keys is not None:
        plain.keys = (<PyListObject*>keys).ob_item
        plain.count = min(plain.count, len(keys))
    return 0


cdef Py_ssize_t read_plain(
    Plain* plain, Py_ssize_t count, Field* value, Field* key, Py_ssize_t step
) noexcept nogil:
    """Point fields at the first rows, ``count`` at most, as long as they are plain; how many are.

    ``bytes`` and tuples of them never change: their addresses may be looked up without the
    interpreter while the lists are held. ``step`` is 1, or 0 for fields that are not used.
    """
    cdef PyObject* data
    cdef PyObject* name
    cdef Py_ssize_t row
    for row in range(count):
        data, name = plain.values[row], Py_None
        if plain.keys != NULL:
            name = plain.keys[row]
        elif not is_bytes(data) and is_tuple(data) and tuple_size(data) == 2:
            name, data = tuple_item(data, 0), tuple_item(data, 1)
        if not (point(value, data) and point(key, name)):
            return row
        if max(value.size, 0) + max(key.size, 0) > plain.largest:
            return row
        plain.keyed = plain.keyed or key.size >= 0
        value += step
        key += step
    return count


cdef inline bint point(Field* field, PyObject* data) noexcept nogil:
    """Point a field at an object; False if it is neither bytes nor None."""
    if is_bytes(data):
        field.data = bytes_at(data)
        field.size = bytes_size(data)
        return True
    field.data = NULL
    field.size = -1
    return data == Py_None


def held(data, /):
    """A key or value, or a pair of them; a copy of a buffer, which may be filled anew."""
    cdef tuple pair
    if PyBytes_CheckExact(data):
        return data
    if isinstance(data, tuple) and len(<tuple>data) == 2:
        pair = <tuple>data
        key, value = copied(pair[0]), copied(pair[1])
        return data if key is pair[0] and value is pair[1] else (key, value)
    return copied(data)


cdef object copied(object data):
    """The bytes of a buffer. Anything else, and what cannot be sent, stays as it is."""
    if isinstance(data, bytearray):
        return bytes(data)
    if isinstance(data, memoryview):
        try:
            if data.ndim == 1 and data.itemsize == 1 and data.c_contiguous:
                return data.tobytes()
        except ValueError:          # it was released
            pass
    return data


@cython.final
cdef class ObjectChunk(RecordChunk):
    """Rows that belong to Python objects."""

    cdef Py_ssize_t _largest
    cdef object _checks
    cdef list _values           # keep the rows' bytes alive: the lists, and converted cells
    cdef list _keys
    cdef list _made
    cdef readonly int32_t largest_partition

    def __cinit__(self, Py_ssize_t capacity, Py_ssize_t largest, checks not None):
        self._largest = largest
        self._checks = checks
        self.largest_partition = UNSET

    def load(
        self, list values not None, list keys=None, headers=None, partitions=None,
        timestamps_ms=None
    ):
        """Hold these records in place of those before."""
        cdef Py_ssize_t count = len(values)
        cdef Py_ssize_t row
        self.forget_rows()
        self._made = []
        if count > self.capacity:
            raise ValueError(f"{count} rows for a chunk of {self.capacity}")
        for column in (keys, headers, partitions, timestamps_ms):
            if type(column) is list and len(<list>column) != count:
                raise ValueError(f"a column of {len(<list>column)} for {count} rows")
        # Lists of our own: the application may change its own while the rows are written.
        self._values, self._keys = values, keys
        self.placed, self.stamped = partitions is not None, timestamps_ms is not None
        self.shared_headers = type(headers) is tuple
        if self.shared_headers:
            self._add_headers(<tuple>headers)
        if headers is None and not (self.placed or self.stamped):
            self._load_plain()
        for row in range(self.count, count):
            self._load_row(row, headers, partitions, timestamps_ms)
            self.count = row + 1

    cdef int _load_plain(self) except -1:
        """Load the rows at the beginning that are plain, as nearly all are."""
        cdef Plain plain
        begin_plain(&plain, self._values, self._keys, self._largest)
        with nogil:
            self.count = read_plain(&plain, plain.count, self.values, self.keys, 1)
        self.keyed = plain.keyed
        return 0

    cdef int _load_row(
        self, Py_ssize_t row, object headers, object partitions, object timestamps_ms
    ) except -1:
        cdef object value = self._values[row]
        cdef object key = None
        cdef Py_ssize_t size
        if self._keys is not None:
            key = self._keys[row]
        elif isinstance(value, tuple) and len(<tuple>value) == 2:
            key, value = <tuple>value
        self._point(row, &self.keys[row], "key", key)
        self._point(row, &self.values[row], "value", value)
        self.keyed = self.keyed or key is not None
        if self.placed:
            self._place(row, cell(partitions, row))
        if self.stamped:
            self._stamp(row, cell(timestamps_ms, row))
        if type(headers) is list:
            self._add_headers(self._checks.headers(row, (<list>headers)[row]))
            self.header_ends[row] = self.header_fields
        size = max(self.keys[row].size, 0) + max(self.values[row].size, 0)
        if size + self._headers_size(row) > self._largest:
            self._judge_size(row)
        return 0

    cdef inline int _point(
        self, Py_ssize_t row, Field* field, str name, object data
    ) except -1:
        if data is not None and not PyBytes_CheckExact(data):
            data = self._checks.payload(row, name, data)
            self._made.append(data)
        if data is None:
            field.data = NULL
            field.size = -1
        else:
            field.data = PyBytes_AS_STRING(<bytes?>data)
            field.size = PyBytes_GET_SIZE(data)
        return 0

    cdef int _place(self, Py_ssize_t row, object partition) except -1:
        self.partitions[row] = partition_of(partition)
        if self.partitions[row] < 0:
            partition = self._checks.partition(row, partition)
            self.partitions[row] = UNSET if partition is None else partition
        self.largest_partition = max(self.largest_partition, self.partitions[row])
        return 0

    cdef int _stamp(self, Py_ssize_t row, object timestamp_ms) except -1:
        self.timestamps[row] = timestamp_of(timestamp_ms)
        if self.timestamps[row] < 0:
            timestamp_ms = self._checks.timestamp(row, timestamp_ms)
            self.timestamps[row] = UNSET if timestamp_ms is None else timestamp_ms
        return 0

    cdef int _add_headers(self, tuple headers) except -1:
        cdef Py_ssize_t size = 0
        cdef const char* data
        self._made.append(headers)
        for name, value in headers:
            data = PyUnicode_AsUTF8AndSize(<str?>name, &size)
            if self.add_header_field(data, size) < 0:
                raise MemoryError("no memory for headers")
            data = NULL if value is None else PyBytes_AS_STRING(<bytes?>value)
            size = -1 if value is None else PyBytes_GET_SIZE(value)
            if self.add_header_field(data, size) < 0:
                raise MemoryError("no memory for headers")
        return 0

    cdef Py_ssize_t _headers_size(self, Py_ssize_t row) noexcept:
        """Bytes of the row's headers, at most."""
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t i
        if row > 0 and self.header_fields > 0 and not self.shared_headers:
            start = self.header_ends[row - 1]
        for i in range(start, self.header_fields):
            size += max(self.headers[i].size, 0) + HEADER_LENGTHS
        return size

    cdef int _judge_size(self, Py_ssize_t row) except -1:
        """Check a row that may be too large, as if it were the next."""
        self.at, self.count = row, row + 1
        try:
            _, key, value, headers = self.row()
            self._checks.size(row, key, value, headers)
        finally:
            self.at, self.count = 0, row
        return 0


cdef inline object cell(object column, Py_ssize_t row):
    """A column's value for a row: the row's own, or the one for all rows."""
    return (<list>column)[row] if type(column) is list else column


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
    """Write the partitions of a chunk's next rows, as many as fit. Returns their number."""
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
