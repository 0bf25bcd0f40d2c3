"""Produce on the wire: requests framed around batches, which are not copied, and their answers."""

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class PartitionBatch:
    cdef readonly str topic
    cdef readonly object topic_id
    cdef readonly int32_t partition
    cdef readonly object records


cpdef list frame_produce(bytes head, int version, int32_t correlation_id, list topics)


@cython.final
cdef class PartitionResponse:
    cdef readonly object topic
    cdef readonly object topic_id
    cdef readonly int32_t partition
    cdef readonly int error_code
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly int64_t log_start_offset
    cdef readonly list record_errors
    cdef readonly object error_message
    cdef readonly int32_t leader_id
    cdef readonly int32_t leader_epoch


cpdef tuple read_produce_response(
    int version, object body, int64_t most_results, int64_t most_errors
)
