# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Batches of records from whatever exports Arrow's C interfaces in capsules."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t
from libc.string cimport memset

from kprod_ext.arrow_abi cimport ArrowArray, ArrowArrayStream, ArrowSchema


@cython.final
cdef class ArrowSource:
    """One batch, or a stream of them; it owns what was exported and releases it."""

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
        """Go on to the next batch; its number of rows, -1 when there is none."""
        cdef ArrowArray array
        cdef int code
        if self._stream.release == NULL:
            if self._begun:
                return -1
            self._begun = True
            return self._judged()
        self._release_array()
        memset(&array, 0, sizeof(ArrowArray))
        code = self._stream.get_next(&self._stream, &array)
        if code != 0:
            raise OSError(code, self._trouble())
        self.array = array
        return -1 if array.release == NULL else self._judged()

    def _judged(self):
        if self.array.n_children != self._schema.n_children or self.array.length < 0:
            raise ValueError("the batch does not fit its schema")
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
        # Moved, as the specification says: a capsule whose structure has no release has nothing.
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
        self._stream = stream[0]
        stream.release = NULL
        code = self._stream.get_schema(&self._stream, &self._schema)
        if code != 0:
            raise OSError(code, self._trouble())
        return 0

    cdef void _release_array(self) noexcept:
        if self.array.release != NULL:
            self.array.release(&self.array)
        self.array.release = NULL


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
