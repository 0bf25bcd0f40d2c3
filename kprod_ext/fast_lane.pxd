cimport cython
from libc.stdint cimport int64_t

from kprod_ext.record_future cimport RecordFuture
from kprod_ext.sticky_partition cimport StickyPartition


@cython.final
cdef class TopicLane:
    cdef list _partitions                   # OpenBatch by number; None: not used yet
    cdef readonly Py_ssize_t partition_count
    cdef Py_ssize_t _largest                # of key and value together, in bytes
    cdef StickyPartition _sticky            # for records without a key; None: not for this lane
    cdef object _filled

    cdef RecordFuture append(self, object key, object value, object partition, object timestamp_ms)
    cdef Py_ssize_t _place(self, object key, object partition, StickyPartition sticky) noexcept


@cython.final
cdef class LaneTable:
    cdef dict _lanes                        # topic -> TopicLane


cdef class FastLane:
    cdef readonly LaneTable _lane_table
