# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Produce requests on the wire: a frame around batches, which are not copied."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kprod_ext.endian cimport put_int32
from kprod_ext.sealed_batch cimport SealedBatch

cdef enum:
    FLEXIBLE_FROM = 9           # version
    FRAME_SIZE_BYTES = 4
    CORRELATION_ID_AT = 8
    LONGEST_VARINT = 5
    MOST_AROUND_RECORDS = 10    # partition, length, no tags


@cython.final
cdef class PartitionBatch:
    """One finished record batch and where it goes. ``topic_id`` is needed from version 13 on."""

    def __init__(self, str topic not None, topic_id, int32_t partition, records):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.records = records

    def __repr__(self):
        return f"<PartitionBatch {self.topic}-{self.partition} {len(self.records)} bytes>"


cdef struct Piece:
    char* data      # as much as the whole frame needs between its records
    Py_ssize_t used
    bint flexible


cpdef list frame_produce(
    bytes head, int version, int32_t correlation_id, list topics
):
    """The pieces of a request: see ``kprod.wire.produce.encode_produce_request``.

    ``head``: all that comes before the topics. ``topics``: (encoded name or id, batches).
    """
    cdef list pieces = []
    cdef Py_ssize_t size = 0
    cdef Piece piece
    cdef bytes first
    piece.used = 0
    piece.flexible = version >= FLEXIBLE_FROM
    piece.data = <char*>PyMem_Malloc(most_between_records(head, topics))
    if piece.data == NULL:
        raise MemoryError("no room for a request")
    try:
        put_bytes(&piece, head)
        size = put_topics(&piece, topics, pieces)
        size += piece.used
        if piece.used:
            pieces.append(cut(&piece))
    finally:
        PyMem_Free(piece.data)
    # Made here, and seen by nobody yet: what was not known before may still be written.
    first = pieces[0]
    put_int32(PyBytes_AS_STRING(first), <int32_t>(size - FRAME_SIZE_BYTES))
    put_int32(PyBytes_AS_STRING(first) + CORRELATION_ID_AT, correlation_id)
    return pieces


cdef Py_ssize_t most_between_records(bytes head, list topics) except -1:
    """No fewer bytes than everything but the records takes."""
    cdef Py_ssize_t most = PyBytes_GET_SIZE(head) + LONGEST_VARINT + 1
    cdef tuple topic
    for topic in topics:
        most += PyBytes_GET_SIZE(<bytes?>topic[0]) + LONGEST_VARINT + 1
        most += len(<list?>topic[1]) * MOST_AROUND_RECORDS
    return most


cdef Py_ssize_t put_topics(Piece* piece, list topics, list pieces) except -1:
    """Write the topics; the bytes of ``pieces``, which all but the last piece come into."""
    cdef Py_ssize_t size = 0, length
    cdef tuple topic
    cdef PartitionBatch batch
    put_length(piece, len(topics))
    for topic in topics:
        put_bytes(piece, <bytes>topic[0])
        put_length(piece, len(<list>topic[1]))
        for batch in <list>topic[1]:
            length = len(batch.records)
            put_int32(piece.data + piece.used, batch.partition)
            piece.used += 4
            put_length(piece, length)
            size += piece.used + length
            pieces.append(cut(piece))
            if type(batch.records) is SealedBatch:
                pieces.extend((<SealedBatch>batch.records).pieces())
            else:
                pieces.append(batch.records)
            put_no_tags(piece)
        put_no_tags(piece)
    put_no_tags(piece)
    return size


cdef bytes cut(Piece* piece):
    """What was written since the last cut."""
    cdef Py_ssize_t used = piece.used
    piece.used = 0
    return PyBytes_FromStringAndSize(piece.data, used)


cdef void put_bytes(Piece* piece, bytes data) noexcept:
    memcpy(piece.data + piece.used, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    piece.used += PyBytes_GET_SIZE(data)


cdef void put_length(Piece* piece, Py_ssize_t length) noexcept:
    """A length: four bytes, or one more as a varint (KIP-482)."""
    if not piece.flexible:
        put_int32(piece.data + piece.used, <int32_t>length)
        piece.used += 4
        return
    length += 1
    while length > 0x7F:
        piece.data[piece.used] = <char>((length & 0x7F) | 0x80)
        piece.used += 1
        length >>= 7
    piece.data[piece.used] = <char>length
    piece.used += 1


cdef void put_no_tags(Piece* piece) noexcept:
    if piece.flexible:
        piece.data[piece.used] = 0
        piece.used += 1
