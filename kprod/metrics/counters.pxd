from libc.stdint cimport int64_t


cdef class Counters:
    cpdef dict values(self)
    cpdef dict end_window(self)


cdef class BatchCounters(Counters):
    cdef public int64_t records_sent
    cdef public int64_t records_failed
    cdef public int64_t records_retried
    cdef public int64_t batches_sent
    cdef public int64_t bytes_sent
    cdef public int64_t uncompressed_bytes


cdef class NodeCounters(Counters):
    cdef public int64_t requests
    cdef public int64_t request_size_max
    cdef public int64_t responses
    cdef public int64_t bytes_out
    cdef public int64_t bytes_in
    cdef public int64_t answers
    cdef public double latency_seconds
    cdef public double latency_max

    cpdef void sent(self, int64_t nbytes) except *
    cpdef void answered(self, double seconds) except *


cdef class ProducerCounters(Counters):
    cdef public int64_t records_sent
    cdef public int64_t records_failed
    cdef public int64_t records_retried
    cdef public double queued_seconds
    cdef public double queued_max
    cdef public int64_t batch_size_max
    cdef public int64_t record_size_max
    cdef public int64_t batches_split
    cdef public int64_t answers
    cdef public double latency_seconds
    cdef public double latency_max
    cdef public int64_t throttle_ms
    cdef public int64_t throttle_ms_max
    cdef public int64_t connections_made
    cdef public int64_t connections_closed
    cdef public int64_t connections_lost
    cdef public int64_t sends_without_room
    cdef public double flush_seconds
