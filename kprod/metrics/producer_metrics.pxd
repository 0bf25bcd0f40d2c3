from libc.stdint cimport int64_t

cimport cython

from kprod.metrics.counters cimport BatchCounters, NodeCounters, ProducerCounters


@cython.final
cdef class ProducerMetrics(ProducerCounters):
    cdef readonly dict topics
    cdef readonly dict nodes
    cdef readonly double mark_due
    cdef Py_ssize_t _samples
    cdef double _window
    cdef tuple _marks
    cdef object _lock

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
