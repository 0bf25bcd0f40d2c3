from kprod.buffer.batch cimport ProducerBatch
from kprod_ext.open_batch cimport OpenBatch


cdef class Appended:
    cdef readonly object future
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint batch_ready
    cdef readonly bint wake_sender
    cdef readonly object linger


cdef class BatchQueue:
    cdef readonly object tp
    cdef readonly object settings
    cdef public object hurry
    cdef public object wait
    cdef public object place
    cdef public object leader
    cdef readonly OpenBatch open_batch
    cdef readonly object lock
    cdef readonly object _batches
    cdef ProducerBatch _newest
    cdef Py_ssize_t _drained

    cpdef Appended try_append(
        self, object timestamp_ms, object key, object value, object headers
    )
    cpdef Appended push(
        self,
        ProducerBatch batch,
        object timestamp_ms,
        object key,
        object value,
        object headers,
    )
    cpdef bint holds(self, ProducerBatch batch) except -1
    cpdef tuple head(self)
    cpdef void close_head(self) except *
    cpdef ProducerBatch take_head(self)
    cdef void _finish(self, ProducerBatch batch) except *
    cpdef void put_back(self, ProducerBatch batch) except *
    cpdef list take_expired(self, double created_before)
    cpdef list take_all(self)
