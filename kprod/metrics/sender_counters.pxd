from libc.stdint cimport int64_t

cimport cython

from kprod.metrics.counters cimport BatchCounters, NodeCounters, ProducerCounters


cdef class SenderCounters(ProducerCounters):
    cdef public dict topics
    cdef readonly dict nodes

    @cython.locals(topic=BatchCounters)
    cpdef void acknowledged(
        self,
        str topic_name,
        int64_t records,
        int64_t nbytes,
        int64_t uncompressed,
        int64_t largest,
        double queued,
    ) except *

    @cython.locals(topic=BatchCounters)
    cpdef void failed(self, object batch) except *

    @cython.locals(topic=BatchCounters)
    cpdef void retried(self, object batch) except *
    cpdef void answered(self, object node_id, double seconds, int64_t throttle_ms) except *

    @cython.locals(counters=BatchCounters)
    cpdef BatchCounters topic(self, str name)

    @cython.locals(counters=NodeCounters)
    cpdef NodeCounters node(self, object node_id)
