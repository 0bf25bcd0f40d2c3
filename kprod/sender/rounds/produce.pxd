cimport cython

from kprod.buffer.accumulator cimport RecordAccumulator
from kprod.buffer.ready_tracker cimport Ready
from kprod.buffer.batch cimport ProducerBatch
from kprod.sender.network cimport Network
from kprod.sender.outcomes cimport Outcomes
from kprod.sender.sequences cimport Sequences


cdef class ProduceRound:
    cdef RecordAccumulator _accumulator
    cdef object _metadata
    cdef Network _network
    cdef Sequences _sequences
    cdef Outcomes _outcomes
    cdef int _request_timeout_ms
    cdef double _delivery_timeout
    cdef object _max_request_size
    cdef object _load_watcher
    cdef public object transaction
    cdef long long _requests
    cdef dict _last_request
    cdef double _next_expiry
    cdef object _swept

    @cython.locals(ready=Ready, nodes=dict, waiting=list, wait=double)
    cpdef double run(self, double now) except? -1
    cdef bint _serve(self, dict nodes, list waiting, object snapshot, double now) except -1
    cdef bint _send(self, object node_id, list asked, object snapshot, double now) except -1

    @cython.locals(taken=list)
    cdef bint _request(self, object node_id, object acks, object snapshot, double now) except -1

    @cython.locals(batch=ProducerBatch, batches=list, topic_ids=dict)
    cdef object _exchange(
        self, object node_id, object acks, list taken, object snapshot, double now
    )
    cdef void _renumber(self, double now) except *
    cdef void _forget_unused(self) except *
    cpdef void expire(self, double now) except *
