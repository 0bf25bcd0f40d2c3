from libc.stdint cimport int32_t

from kprod.buffer.delivery cimport BatchDelivery
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.futures cimport track, untrack
from kprod_ext.partition_queue cimport write_first
from kprod_ext.batch cimport MemoryRecordsBuilder


cdef class ProducerBatch:
    cdef readonly object tp
    cdef BufferPool _pool
    cdef PooledBuffer _buffer
    cdef readonly MemoryRecordsBuilder builder
    cdef readonly BatchDelivery delivery
    cdef readonly double created_at
    cdef public Py_ssize_t attempts
    cdef public double last_attempt_at
    cdef public double retry_at
    cdef readonly object last_error
    cdef public object attempted_leader
    cdef public object producer
    cdef public int32_t base_sequence
    cdef public object sequences
    cdef public tuple drain_order
    cdef public bint in_line
    cdef public bint maybe_written
    cdef public bint on_wire
    cdef public bint overtaken
    cdef public object records

    cpdef tuple write_first(self, object timestamp_ms, object key, object value, object headers)
    cpdef void give_sequence(self, object producer, int32_t base_sequence) except *
    cpdef void seal(self, object compress) except *
    cpdef void attempt(self, double now, object leader) except *
    cpdef void failed(self, object error) except *
    cpdef void release(self) except *
