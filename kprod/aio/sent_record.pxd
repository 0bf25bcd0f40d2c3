cimport cython

from kprod.buffer.delivery cimport BatchDelivery
from kprod_ext.loop_future cimport LoopFuture
from kprod_ext.futures cimport RecordFuture


cdef class Settling:
    cdef readonly object loop
    cdef readonly object error
    cdef readonly bint renews
    cdef readonly object stored
    cdef dict _batches
    cdef BatchDelivery _latest
    cdef list _latest_records
    cdef object _due
    cdef bint _scheduled
    cdef double _rests_at

    @cython.locals(now=double)
    cpdef bint rests(self) except -1

    @cython.locals(delivery=BatchDelivery)
    cpdef void watch(self, SentRecord record) except *

    @cython.locals(records=list)
    cdef void _turn_to(self, BatchDelivery delivery) except *
    cdef void _schedule(self) except *


cdef class SentRecord(LoopFuture):
    pass


@cython.locals(made=SentRecord)
cpdef SentRecord sent(Settling settling, RecordFuture native)


@cython.locals(more=list)
cpdef void tell(SentRecord record) except *
cdef void _call(SentRecord record, object callback, object context) except *


@cython.locals(native=RecordFuture, delivery=BatchDelivery)
cdef BatchDelivery outcome_of(SentRecord record)
cdef BatchDelivery _settled(SentRecord record, str otherwise)
cdef object _error(SentRecord record)
cdef object _cancelled(SentRecord record)
