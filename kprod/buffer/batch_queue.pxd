cimport cython
from libc.stdint cimport int64_t

from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.queue_list cimport NodeQueues, QueueListMember
from kprod_ext.partition_queue cimport PartitionAppender


@cython.no_gc           # only the caller that asked for the append refers to it
cdef class Appended:
    cdef readonly object future
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint batch_ready
    cdef readonly bint wake_sender
    cdef readonly object linger

    cpdef void tell(self, object future, Py_ssize_t nbytes, bint full) except *


cdef class BatchQueue(QueueListMember):
    cdef readonly object tp
    cdef readonly object settings
    cdef public object hurry
    cdef public object wait
    cdef public object batch_compression
    cdef public Py_ssize_t batch_max_size
    cdef public Py_ssize_t grows_to
    cdef public object leader
    cdef public NodeQueues queues_of_node
    cdef public int64_t found_in
    cdef public int64_t look
    cdef readonly double linger
    cdef readonly int acks
    cdef readonly PartitionAppender partition_appender
    cdef readonly object lock
    cdef readonly object _batches
    cdef ProducerBatch _newest
    cdef Py_ssize_t _drained
    cdef readonly bint retired

    cpdef Appended append_at_once(
        self, object timestamp_ms, object key, object value, object headers
    )

    @cython.locals(newest=ProducerBatch)
    cpdef Appended append_to_open(
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
    cpdef bint retire(self, object queues) except -1
    cpdef list take_expired(self, double created_before)
    cpdef list take_all(self)
