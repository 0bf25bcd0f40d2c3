cimport cython

from kprod_ext.produce_answer cimport read_produce_response
from kprod_ext.produce_frame cimport PartitionBatch, frame_produce


cdef class ProduceResponse:
    cdef readonly list partitions
    cdef readonly object throttle_ms
    cdef readonly list brokers


cpdef list encode_produce_request(
    int version,
    object correlation_id,
    object client_id,
    object acks,
    object timeout_ms,
    list batches,
    object transactional_id=*,
)


@cython.locals(topics=dict, batch=PartitionBatch, members=list)
cdef list _by_topic(int version, list batches)
cpdef ProduceResponse decode_produce_response(int version, object body)
