from libc.stdint cimport int64_t

from kprod.buffer.accumulator cimport RecordAccumulator
from kprod.buffer.batch cimport ProducerBatch
from kprod.metrics.sender_counters cimport SenderCounters
from kprod.sender.sequences cimport Sequences


cdef class Outcomes:
    cdef RecordAccumulator _accumulator
    cdef object _metadata
    cdef Sequences _sequences
    cdef SenderCounters _metrics
    cdef object _retries
    cdef double _delivery_timeout
    cdef object _final_errors
    cdef object _troubles
    cdef object _unread
    cdef dict _on_wire
    cdef object _unresolved
    cdef public bint strays
    cdef public object record_failed

    cpdef void left(self, ProducerBatch batch) except *
    cpdef void not_sent(self, ProducerBatch batch, double now) except *
    cpdef void stored(self, ProducerBatch batch, int64_t base_offset, int64_t append_time) except *
    cdef void _acknowledge(
        self, ProducerBatch batch, int64_t base_offset, int64_t append_time
    ) except *
    cdef void _tell_apart(
        self, list unresolved, ProducerBatch acknowledged, int64_t base_offset
    ) except *
    cdef void _off_wire(self, ProducerBatch batch) except *
    cdef void _succeed(self, ProducerBatch batch, int64_t base_offset, int64_t append_time) except *
    cdef void _count(self, ProducerBatch batch) except *
