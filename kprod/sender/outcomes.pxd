from libc.stdint cimport int64_t

from kprod.buffer.accumulator cimport RecordAccumulator
from kprod.buffer.batch cimport ProducerBatch
from kprod.metrics.producer_metrics cimport ProducerMetrics
from kprod.sender.doubts cimport Doubts
from kprod.sender.sequences cimport Sequences


cdef class Outcomes:
    cdef RecordAccumulator _accumulator
    cdef object _metadata
    cdef Sequences _sequences
    cdef ProducerMetrics _metrics
    cdef object _retries
    cdef double _delivery_timeout
    cdef object _trouble_with
    cdef dict _on_wire
    cdef Doubts _doubts
    cdef public bint strays

    cpdef void left(self, ProducerBatch batch) except *
    cpdef void not_sent(self, ProducerBatch batch, double now) except *
    cpdef void stored(self, ProducerBatch batch, int64_t base_offset, int64_t append_time) except *
    cdef void _acknowledge(
        self, ProducerBatch batch, int64_t base_offset, int64_t append_time
    ) except *
    cdef void _tell_apart(
        self, list doubted, ProducerBatch acknowledged, int64_t base_offset
    ) except *
    cdef void _off_wire(self, ProducerBatch batch) except *
    cdef void _succeed(self, ProducerBatch batch, int64_t base_offset, int64_t append_time) except *
    cdef void _count(self, ProducerBatch batch) except *
