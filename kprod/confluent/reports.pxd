cimport cython

from kprod.confluent.message cimport Message, delivered, queued
from kprod_ext.guarded cimport Guarded
from kprod_ext.futures cimport RecordFuture


cdef class ReportedBatch:
    cdef readonly object delivery
    cdef list messages
    cdef double ended_at


cdef class DeliveryReports(Guarded):
    cdef readonly Py_ssize_t waiting
    cdef readonly object ready
    cdef public object on_ready
    cdef bint only_errors
    cdef ReportedBatch _latest
    cdef dict _batches
    cdef object _something

    @cython.locals(batch=ReportedBatch, message=Message, ended=bint)
    cpdef void add(
        self,
        RecordFuture future,
        object on_delivery,
        object key,
        object value,
        object headers,
        double began,
    ) except *

    @cython.locals(batch=ReportedBatch)
    cdef ReportedBatch _batch(self, object delivery)
    cpdef void _ended(self, ReportedBatch batch) except *
    cdef void _hand_out(self, object ready) except *

    @cython.locals(served=Py_ssize_t)
    cpdef Py_ssize_t serve(self) except -1

    @cython.locals(messages=list, fresh=list, message=Message, served=Py_ssize_t)
    cdef Py_ssize_t _serve_batch(self, ReportedBatch batch) except -1
    cdef void _put_back(self, ReportedBatch batch, list messages) except *
    cpdef void expect(self, Py_ssize_t records) except *
