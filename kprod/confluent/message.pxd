from libc.stdint cimport int64_t

cimport cython

from kprod.buffer.delivery cimport BatchDelivery
from kprod_ext.futures cimport RecordFuture


@cython.freelist(64)
cdef class Message:
    cdef object _topic
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef object _error
    cdef RecordFuture _future
    cdef object _on_delivery
    cdef double _began
    cdef double _latency
    cdef int64_t _partition
    cdef int64_t _offset
    cdef int64_t _timestamp_type
    cdef int64_t _timestamp
    cdef int64_t _leader_epoch
    cdef int64_t _delivery_count

    cpdef tuple _all(self)


@cython.locals(message=Message)
cpdef Message queued(
    RecordFuture future,
    object on_delivery,
    object key,
    object value,
    object headers,
    double began,
)


@cython.locals(
    future=RecordFuture, delivery=BatchDelivery, index=int64_t, base=int64_t, stamp=int64_t
)
cpdef object delivered(Message message, double ended_at)
