# cython: language_level=3, auto_pickle=False, autotestdict=False
"""A block of records from Python objects: the addresses of their bytes, column by column."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t

from kprod_ext.prefetch cimport kprod_prefetch
from kprod_ext.record_chunk cimport UNSET, RecordChunk
from kprod_ext.record_layout cimport Field
from kprod_ext.shared cimport KPROD_HAS_GIL

cdef enum:
    HEADER_OVERHEAD = 10    # bytes that the two lengths of a header take at most
    AHEAD = 8               # objects lie anywhere: ask for their memory some rows before its turn

cdef enum:                  # the columns in the order in which they are loaded
    PAYLOADS
    PARTITIONS
    TIMESTAMPS
    HEADERS
    SIZES                   # of what was loaded
    COLUMNS


def all_plain(list values not None, list keys, Py_ssize_t largest):
    """Whether every value and key is bytes or None, or a pair of them, and small enough."""
    cdef Py_ssize_t count = len(values)
    cdef Py_ssize_t row, size, first = 0
    cdef object value, key
    if not KPROD_HAS_GIL:               # another thread may change the lists while we look
        values, keys = values[:], None if keys is None else keys[:]
        count = len(values)
    if keys is not None and len(keys) != count:
        raise ValueError(f"{len(keys)} keys for {count} values")
    if keys is None:
        first = plain_rows(values, 0, count, largest)
    for row in range(first, count):
        if row + AHEAD < count:
            kprod_prefetch(<const void*>PyList_GET_ITEM(values, row + AHEAD))
        value = values[row]
        key = None
        if keys is not None:
            key = keys[row]
        elif type(value) is tuple and len(<tuple>value) == 2:
            key, value = <tuple>value
        size = 0
        if value is not None:
            if not PyBytes_CheckExact(value):
                return False
            size = PyBytes_GET_SIZE(value)
        if key is not None:
            if not PyBytes_CheckExact(key) or PyBytes_GET_SIZE(key) > largest:
                return False
            size += PyBytes_GET_SIZE(key)
        if size > largest:
            return False
    return True


cdef Py_ssize_t plain_rows(list values, Py_ssize_t start, Py_ssize_t end, Py_ssize_t largest):
    """The first row from ``start`` on that is not bytes of at most ``largest``; ``end``: none.

    Nothing here can run other code, nor change the list, so the objects are looked at without
    holding them: to count references is to write to every one of them.
    """
    cdef Py_ssize_t row
    cdef PyObject* value
    for row in range(start, end):
        if row + AHEAD < end:
            kprod_prefetch(<const void*>PyList_GET_ITEM(values, row + AHEAD))
        value = PyList_GET_ITEM(values, row)
        if not PyBytes_CheckExact(<object>value) or PyBytes_GET_SIZE(<object>value) > largest:
            return row
    return end


@cython.final
cdef class ObjectChunk(RecordChunk):
    """Rows that belong to Python objects."""

    cdef Py_ssize_t _largest
    cdef object _checks
    cdef list _values           # what the rows point into: these two, and what was made of them
    cdef list _keys
    cdef list _made
    cdef Py_ssize_t _good       # rows before the first that a check refused
    cdef Py_ssize_t _row        # that is being loaded
    cdef Py_ssize_t _plain      # rows at the beginning whose size was looked at
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
        self.forget_rows()
        self._made = []
        if count > self.capacity:
            raise ValueError(f"{count} rows for a chunk of {self.capacity}")
        for column in (keys, headers, partitions, timestamps_ms):
            if type(column) is list and len(<list>column) != count:
                raise ValueError(f"a column of {len(<list>column)} for {count} rows")
        # Lists of our own: the application may change its own while the rows are written.
        self._values, self._keys = values, keys
        self._good = count
        try:
            self._load_columns(PAYLOADS, headers, partitions, timestamps_ms)
        finally:
            self.count = self._good

    cdef int _load_columns(
        self, int column, object headers, object partitions, object timestamps_ms
    ) except -1:
        """This column and those after it. Of several bad rows the first one's error is raised."""
        if column == COLUMNS:
            return 0
        try:
            self._load_column(column, headers, partitions, timestamps_ms)
        except BaseException:
            self._good = self._row      # what is raised from here on is of an earlier row
            self._load_columns(column + 1, headers, partitions, timestamps_ms)
            raise
        return self._load_columns(column + 1, headers, partitions, timestamps_ms)

    cdef int _load_column(
        self, int column, object headers, object partitions, object timestamps_ms
    ) except -1:
        self._row = 0
        if column == PAYLOADS:
            return self._load_payloads()
        if column == PARTITIONS:
            return self._load_partitions(partitions)
        if column == TIMESTAMPS:
            return self._load_timestamps(timestamps_ms)
        if column == HEADERS and headers is not None:
            return self._load_headers(headers)
        return self._check_sizes() if column == SIZES else 0

    cdef int _load_payloads(self) except -1:
        cdef list values = self._values
        cdef list keys = self._keys
        cdef object key, value
        cdef Py_ssize_t row
        self._plain = self._load_plain() if keys is None else 0
        for row in range(self._plain, self._good):
            self._row = row
            if row + AHEAD < self._good:
                kprod_prefetch(<const void*>PyList_GET_ITEM(values, row + AHEAD))
            value = values[row]
            key = None
            if keys is not None:
                key = keys[row]
            elif isinstance(value, tuple) and len(<tuple>value) == 2:
                key, value = <tuple>value
            self._point(&self.keys[row], "key", key)
            self.keyed = self.keyed or key is not None
            self._point(&self.values[row], "value", value)
        return 0

    cdef Py_ssize_t _load_plain(self):
        """Load the first rows, which are bytes of no doubtful size without a key; how many."""
        cdef list values = self._values
        cdef Py_ssize_t row
        cdef PyObject* value
        for row in range(self._good):
            if row + AHEAD < self._good:
                kprod_prefetch(<const void*>PyList_GET_ITEM(values, row + AHEAD))
            value = PyList_GET_ITEM(values, row)
            if not PyBytes_CheckExact(<object>value):
                return row
            if PyBytes_GET_SIZE(<object>value) > self._largest:
                return row
            self.values[row].data = PyBytes_AS_STRING(<object>value)
            self.values[row].size = PyBytes_GET_SIZE(<object>value)
            self.keys[row].data = NULL
            self.keys[row].size = -1
        return self._good

    cdef inline int _point(self, Field* field, str name, object data) except -1:
        if data is not None and not PyBytes_CheckExact(data):
            data = self._checks.payload(self._row, name, data)
            self._made.append(data)
        if data is None:
            field.data = NULL
            field.size = -1
        else:
            field.data = PyBytes_AS_STRING(<bytes?>data)
            field.size = PyBytes_GET_SIZE(data)
        return 0

    cdef int _load_partitions(self, object partitions) except -1:
        cdef object place = partitions
        cdef Py_ssize_t row
        self.placed = partitions is not None
        for row in range(self._good if self.placed else 0):
            self._row = row
            if type(partitions) is list:
                place = (<list>partitions)[row]
            if not (PyLong_CheckExact(place) and 0 <= place <= INT32_MAX):
                place = self._checks.partition(row, place)
            self.partitions[row] = UNSET if place is None else place
            self.largest_partition = max(self.largest_partition, self.partitions[row])
        return 0

    cdef int _load_timestamps(self, object timestamps_ms) except -1:
        cdef object moment = timestamps_ms
        cdef Py_ssize_t row
        self.stamped = timestamps_ms is not None
        for row in range(self._good if self.stamped else 0):
            self._row = row
            if type(timestamps_ms) is list:
                moment = (<list>timestamps_ms)[row]
            if not (PyLong_CheckExact(moment) and 0 <= moment <= INT64_MAX):
                moment = self._checks.timestamp(row, moment)
            self.timestamps[row] = UNSET if moment is None else moment
        return 0

    cdef int _load_headers(self, object headers) except -1:
        cdef tuple frozen
        cdef Py_ssize_t row
        self.shared_headers = type(headers) is tuple
        if self.shared_headers:
            return self._add_headers(<tuple>headers)
        for row in range(self._good):
            self._row = row
            frozen = self._checks.headers(row, (<list>headers)[row])
            self._add_headers(frozen)
            self.header_ends[row] = self.header_fields
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

    cdef int _check_sizes(self) except -1:
        cdef Py_ssize_t row, size
        cdef Py_ssize_t shared = self._headers_size(0, self.header_fields)
        if not self.shared_headers:
            shared = 0
        for row in range(0 if self.header_fields > 0 else self._plain, self._good):
            self._row = row
            size = max(self.keys[row].size, 0) + max(self.values[row].size, 0) + shared
            if self.header_fields > 0 and not self.shared_headers:
                size += self._headers_size(
                    self.header_ends[row - 1] if row > 0 else 0, self.header_ends[row]
                )
            if size > self._largest:
                self._judge_size(row)
        return 0

    cdef Py_ssize_t _headers_size(self, Py_ssize_t start, Py_ssize_t end) noexcept:
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t i
        for i in range(start, end):
            size += max(self.headers[i].size, 0) + HEADER_OVERHEAD
        return size

    cdef int _judge_size(self, Py_ssize_t row) except -1:
        """Ask about a row that may be too large, as if it were the next."""
        self.at, self.count = row, row + 1
        try:
            _, key, value, headers = self.row()
            self._checks.size(row, key, value, headers)
        finally:
            self.at = self.count = 0
        return 0
