cimport cython
from libc.stdint cimport int64_t

from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.place cimport Post, Standing
from kprod_ext.open_batch cimport OpenBatch


@cython.no_gc           # nothing refers to it but who asked for the append
cdef class Appended:
    cdef readonly object future
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint batch_ready
    cdef readonly bint wake_sender
    cdef readonly object linger


cdef class BatchQueue(Standing):
    cdef readonly object tp
    cdef readonly object settings
    cdef public object hurry
    cdef public object wait
    cdef public object packing
    cdef public object leader
    cdef public Post post
    cdef public int64_t found_in
    cdef public int64_t look
    cdef readonly double linger
    cdef readonly int acks
    cdef readonly OpenBatch open_batch
    cdef readonly object lock
    cdef readonly object _batches
    cdef ProducerBatch _newest
    cdef Py_ssize_t _drained

    cpdef Appended append_at_once(
        self, object timestamp_ms, object key, object value, object headers
    )
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

    @cython.locals(first=ProducerBatch)
    cpdef tuple head(self)

    @cython.locals(batch=ProducerBatch)
    cpdef bint close_head(self) except -1
    cpdef void pack_head(self, ProducerBatch batch) except *
    cpdef ProducerBatch take_head(self)
    cdef void _finish(self, ProducerBatch batch) except *
    cdef void _end(self, ProducerBatch batch) except *
    cpdef void put_back(self, ProducerBatch batch) except *
    cpdef list take_expired(self, double created_before)
    cpdef list take_all(self)
