cimport cython
from libc.stdint cimport int32_t


@cython.final
cdef class PartitionBatch:
    cdef readonly str topic
    cdef readonly object topic_id
    cdef readonly int32_t partition
    cdef readonly object records


cpdef list frame_produce(bytes head, int version, int32_t correlation_id, list topics)
