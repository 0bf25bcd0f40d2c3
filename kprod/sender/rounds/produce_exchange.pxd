cimport cython

from kprod.buffer.batch cimport ProducerBatch
from kprod.sender.outcomes cimport Outcomes
from kprod.wire.produce cimport (
    ProduceResponse,
    decode_produce_response,
    encode_produce_request,
)
from kprod_ext.produce_answer cimport PartitionResponse
from kprod_ext.produce_frame cimport PartitionBatch


cdef class ProduceExchange:
    cdef readonly object version_cap
    cdef readonly bint expects_response
    cdef Outcomes _outcomes
    cdef dict _batches
    cdef dict _topic_ids
    cdef int _acks
    cdef int _timeout_ms
    cdef object _node_id
    cdef object _transactional_id
    cdef double _sent_at
    cdef object _named
    cdef dict _moved

    @cython.locals(parts=list, batch=ProducerBatch)
    cpdef object encode(self, int version, object correlation_id, object client_id)

    @cython.locals(
        response=ProduceResponse, part=PartitionResponse, batch=ProducerBatch, names=dict
    )
    cpdef object answered(self, int version, object body, double now)
    cdef void _end_left_out(self, double now) except *
    cdef void _settle(self, ProducerBatch batch, PartitionResponse part, double now) except *
