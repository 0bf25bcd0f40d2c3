cimport cython

from kprod.aio.sent_record cimport SentRecord, Settling, sent
from kprod.aio.turns cimport Turns
from kprod.buffer.delivery cimport BatchDelivery
from kprod_ext.futures cimport RecordFuture


cdef class Sending:
    cdef readonly object native
    cdef readonly object _send
    cdef Py_ssize_t _queued
    cdef readonly Turns _turns
    cdef readonly object _under_way
    cdef object _make_settling
    cdef Settling _settling

    @cython.locals(native=RecordFuture)
    cpdef SentRecord send_at_once(
        self,
        object topic,
        object value=*,
        object key=*,
        object headers=*,
        object partition=*,
        object timestamp_ms=*,
    )

    cpdef RecordFuture put_at_once(
        self,
        object topic,
        object value=*,
        object key=*,
        object headers=*,
        object partition=*,
        object timestamp_ms=*,
    )

    @cython.locals(turns=Turns, native=RecordFuture)
    cpdef tuple put_until_waiting(self, object topic, object values, object keys, list queued)

    @cython.locals(ends_at=double, at=Py_ssize_t, native=RecordFuture, delivery=BatchDelivery)
    cpdef void take_outcomes(self, list queued, list stored) except *

    @cython.locals(settling=Settling)
    cpdef SentRecord sent(self, RecordFuture native)

    @cython.final
    @cython.locals(native=RecordFuture)
    cdef RecordFuture _queue(
        self,
        object topic,
        object value,
        object key,
        object headers,
        object partition,
        object timestamp_ms,
    )
    cpdef void _remember(self, object native) except *
