cimport cython

from kprod.buffer.delivery cimport BatchDelivery
from kprod_ext.futures cimport untrack
from kprod_ext.futures cimport RecordFuture


@cython.no_gc
cdef class FutureRecordMetadata(RecordFuture):
    pass


cdef BatchDelivery _outcome(FutureRecordMetadata future)


@cython.locals(outcome=BatchDelivery)
cdef object _error(FutureRecordMetadata future)


@cython.locals(outcome=BatchDelivery)
cdef bint _has_succeeded(FutureRecordMetadata future) except -1


@cython.locals(delivery=BatchDelivery, index=object)
cdef object _metadata(FutureRecordMetadata future)
