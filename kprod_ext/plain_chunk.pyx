# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Records that are bytes and nothing else, from lists: read without the interpreter.

The lists are copied once, while the interpreter is held; from then on the objects in them stay
alive, whatever the application does with its own. ``bytes`` and tuples of them never change, so
their addresses can be looked up later, some rows at a time, in the middle of the bulk lane's loop.
"""

cimport cython
from cpython.object cimport PyObject

from kprod_ext.prefetch cimport kprod_prefetch
from kprod_ext.record_chunk cimport RecordChunk
from kprod_ext.record_layout cimport Field

cdef enum:
    AHEAD = 8               # objects lie anywhere: ask for their memory some rows before its turn

# Declared for objects that nobody counts references of, which would need the interpreter.
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


@cython.final
cdef class PlainChunk(RecordChunk):
    """Rows that are bytes or None, or pairs of these."""

    cdef Py_ssize_t _largest
    cdef list _own_values       # copies, which nobody else has
    cdef list _own_keys
    cdef PyObject** _items      # of the copies; NULL: there are no keys
    cdef PyObject** _key_items
    cdef Py_ssize_t _next       # row of the copies that is read next
    cdef Py_ssize_t _rows

    def __cinit__(self, Py_ssize_t capacity, Py_ssize_t largest):
        self._largest = largest

    def begin(self, list values not None, list keys, Py_ssize_t start, Py_ssize_t end):
        """Hold the rows from ``start`` to ``end``, and begin to read them."""
        self.forget_rows()
        self._next = self._rows = 0
        self._own_values = values[start:end]
        self._own_keys = None if keys is None else keys[start:end]
        self._items = (<PyListObject*>self._own_values).ob_item
        self._rows = len(self._own_values)
        self._key_items = NULL
        if self._own_keys is not None:
            self._key_items = (<PyListObject*>self._own_keys).ob_item
            self._rows = min(self._rows, len(self._own_keys))

    @property
    def read(self):
        return self._next

    cdef Py_ssize_t to_follow(self) noexcept nogil:
        return self._rows - self._next

    cdef bint refill(self) noexcept nogil:
        cdef Py_ssize_t most = min(self.capacity, self._rows - self._next)
        self.forget_rows()
        if self._key_items == NULL:
            self.count = self._read_values(most)
        if self.count == 0:
            self.count = self._read_rows(most)
        self._next += self.count
        return self.count > 0

    cdef Py_ssize_t _read_values(self, Py_ssize_t most) noexcept nogil:
        """Read values as long as they are bytes and there is nothing else; how many."""
        cdef PyObject** items = self._items + self._next
        cdef Py_ssize_t row
        for row in range(most):
            if row + AHEAD < most:
                kprod_prefetch(items[row + AHEAD])
            if not is_bytes(items[row]) or bytes_size(items[row]) > self._largest:
                return row
            self.values[row].data = bytes_at(items[row])
            self.values[row].size = bytes_size(items[row])
        return most

    cdef Py_ssize_t _read_rows(self, Py_ssize_t most) noexcept nogil:
        """Read values and keys as long as they are bytes or None; how many."""
        cdef PyObject* value
        cdef PyObject* key
        cdef Py_ssize_t row
        for row in range(most):
            if row + AHEAD < most:
                kprod_prefetch(self._items[self._next + row + AHEAD])
            value, key = self._items[self._next + row], Py_None
            if self._key_items != NULL:
                key = self._key_items[self._next + row]
            elif is_tuple(value) and tuple_size(value) == 2:
                key, value = tuple_item(value, 0), tuple_item(value, 1)
            if not (point(&self.keys[row], key) and point(&self.values[row], value)):
                return row
            if max(self.keys[row].size, 0) + max(self.values[row].size, 0) > self._largest:
                return row
            self.keyed = self.keyed or self.keys[row].size >= 0
        return most


cdef inline bint point(Field* field, PyObject* data) noexcept nogil:
    """Let a field be that object; False if it is neither bytes nor None."""
    if data == Py_None:
        field.data = NULL
        field.size = -1
        return True
    if not is_bytes(data):
        return False
    field.data = bytes_at(data)
    field.size = bytes_size(data)
    return True
