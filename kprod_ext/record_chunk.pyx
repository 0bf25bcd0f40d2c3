# cython: language_level=3, auto_pickle=False, autotestdict=False
"""A block of records in memory, column by column: what a bulk call writes.

Its subclass keeps the bytes alive until the rows are written: ``ObjectChunk`` those of Python
objects, ``ArrowChunk`` those of an Arrow array.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_RawFree, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t

from kprod_ext.record_layout cimport Field, Record

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

    @property
    def spreads(self):
        return self.keyed or self.placed

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
        """Add to the headers of the row that is being filled; -1 when there is no memory."""
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
