from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.batch_queue cimport BatchQueue
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.batch cimport MemoryRecordsBuilder


cdef class SpareBatch:
    cdef readonly PooledBuffer buffer
    cdef readonly MemoryRecordsBuilder builder


cdef class BatchMaker:
    cdef BufferPool _pool
    cdef object _clock
    cdef Py_ssize_t _batch_size
    cdef Py_ssize_t _batch_max_size
    cdef object _ratios
    cdef object _callbacks
    cdef object _wake

    cpdef PooledBuffer memory(self, Py_ssize_t size, double timeout)
    cpdef ProducerBatch batch(self, BatchQueue queue, PooledBuffer buffer)
    cpdef ProducerBatch filled(self, BatchQueue queue, SpareBatch spare)
    cpdef list spares(self, BatchQueue queue, Py_ssize_t count)
    cdef ProducerBatch _batch(
        self, BatchQueue queue, PooledBuffer buffer, MemoryRecordsBuilder builder
    )
    cdef MemoryRecordsBuilder _builder(self, BatchQueue queue, PooledBuffer buffer)
