cimport cython

from kprod.buffer.delivery cimport BatchDelivery
from kprod_ext.record_future cimport RecordFuture


@cython.no_gc
cdef class FutureRecordMetadata(RecordFuture):
    cpdef object get(self, object timeout=*)

    @cython.locals(delivery=BatchDelivery)
    cdef BatchDelivery _outcome(self)
    cdef object _told(self, BatchDelivery delivery, Py_ssize_t index)
    cdef object _metadata(self)
