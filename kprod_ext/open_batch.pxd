cimport cython

from kprod_ext.record_future cimport RecordFuture
from kprod_ext.record_layout cimport Record
from kprod_ext.records_builder cimport MemoryRecordsBuilder


@cython.final
cdef class OpenBatch:
    cdef cython.pymutex _lock               # guards the two below, and writing into the builder
    cdef MemoryRecordsBuilder _builder      # None: nobody may append
    cdef object _delivery
    cdef type _future_type

    cdef tuple _exchange(self, MemoryRecordsBuilder builder, object delivery)

    # A record from memory: its future, or None when it was not taken. nbytes and full are outputs.
    cdef RecordFuture append(self, const Record* record, Py_ssize_t* nbytes, bint* full)
