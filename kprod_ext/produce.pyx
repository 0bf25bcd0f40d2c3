# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Produce requests, framed around batches without copying them, and their responses."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kprod_ext.record cimport get_int16, get_int32, get_int64, put_int16, put_int32

from kprod_ext.peer_text import LONGEST as _LONGEST_TEXT, decoded, printable

# Produce requests on the wire: a frame around batches, which are not copied.

cdef enum:
    FLEXIBLE_FROM = 9           # versions
    TOPIC_IDS_FROM = 13
    FRAME_SIZE_BYTES = 4
    CORRELATION_ID_AT = 8
    LONGEST_VARINT = 5
    LONGEST_CHARACTER = 4
    LONGEST_NAME = 32767
    MOST_AROUND_RECORDS = 10    # partition, length, no tags


cdef struct Piece:
    char* data      # room for the whole frame without its records
    Py_ssize_t used
    bint flexible
    bint by_id      # topics are named by their ids


cpdef list frame_produce(bytes head, int version, int32_t correlation_id, dict topics):
    """The pieces of a request: see ``kprod.wire.produce.encode_produce_request``.

    ``head``: all that comes before the topics.
    """
    cdef list pieces = []
    cdef Py_ssize_t size = 0
    cdef Piece piece
    cdef bytes first
    piece.used = 0
    piece.flexible = version >= FLEXIBLE_FROM
    piece.by_id = version >= TOPIC_IDS_FROM
    piece.data = <char*>PyMem_Malloc(most_between_records(head, topics))
    if piece.data == NULL:
        raise MemoryError("no room for a request")
    try:
        put_bytes(&piece, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
        size = put_topics(&piece, topics, pieces)
        size += piece.used
        if piece.used:
            pieces.append(cut(&piece))
    finally:
        PyMem_Free(piece.data)
    # No other code refers to these bytes yet, so fields unknown before may still be written.
    first = pieces[0]
    put_int32(PyBytes_AS_STRING(first), <int32_t>(size - FRAME_SIZE_BYTES))
    put_int32(PyBytes_AS_STRING(first) + CORRELATION_ID_AT, correlation_id)
    return pieces


cdef Py_ssize_t most_between_records(bytes head, dict topics) except -1:
    """An upper bound of the bytes of everything but the records."""
    cdef Py_ssize_t most = PyBytes_GET_SIZE(head) + LONGEST_VARINT + 1
    for name, batches in topics.items():
        most += LONGEST_CHARACTER * len(name) + 2 * LONGEST_VARINT + 1
        most += len(<list?>batches) * MOST_AROUND_RECORDS
    return most


cdef Py_ssize_t put_topics(Piece* piece, dict topics, list pieces) except -1:
    """Write the topics; the bytes of ``pieces``, which all but the last piece come into."""
    cdef Py_ssize_t size = 0, length
    cdef int32_t partition
    cdef list records
    put_length(piece, len(topics))
    for name, batches in topics.items():
        put_topic(piece, name)
        put_length(piece, len(<list>batches))
        for partition, records in <list>batches:
            length = 0
            for part in records:
                length += len(part)
            put_int32(piece.data + piece.used, partition)
            piece.used += 4
            put_length(piece, length)
            size += piece.used + length
            pieces.append(cut(piece))
            pieces.extend(records)
            put_no_tags(piece)
        put_no_tags(piece)
    put_no_tags(piece)
    return size


cdef int put_topic(Piece* piece, object name) except -1:
    """A topic by its id, or by its name."""
    cdef Py_ssize_t length
    cdef const char* text
    if piece.by_id:
        put_bytes(piece, PyBytes_AS_STRING(<bytes?>name), PyBytes_GET_SIZE(name))
        return 0
    text = PyUnicode_AsUTF8AndSize(<str?>name, &length)
    if length > LONGEST_NAME:
        raise ValueError(f"a topic name of {length} bytes; at most {LONGEST_NAME} fit")
    if piece.flexible:
        put_length(piece, length)
    else:
        put_int16(piece.data + piece.used, <int16_t>length)
        piece.used += 2
    put_bytes(piece, text, length)
    return 0


cdef bytes cut(Piece* piece):
    """The bytes written since the last cut."""
    cdef Py_ssize_t used = piece.used
    piece.used = 0
    return PyBytes_FromStringAndSize(piece.data, used)


cdef void put_bytes(Piece* piece, const char* data, Py_ssize_t size) noexcept:
    memcpy(piece.data + piece.used, data, size)
    piece.used += size


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


# Produce responses, from bytes.
#
# Every length and count in a response is compared with the bytes that are left before anything is
# read or allocated. Malformed bytes raise ValueError with the fault and its place.


cdef enum:
    LOG_START_FROM = 5          # versions
    RECORD_ERRORS_FROM = 8
    LEADER_HINTS_FROM = 10
    SMALLEST_TOPIC = 2          # bytes: empty strings and arrays
    SMALLEST_RESULT = 22
    SMALLEST_RECORD_ERROR = 5
    SMALLEST_ENDPOINT = 11
    UUID_BYTES = 16
    LEADER_HINT = 0             # tags
    NODE_ENDPOINTS = 0

cdef int64_t LONGEST_STRING = _LONGEST_TEXT  # bytes; a longer one may have to be cut


@cython.final
cdef class PartitionResponse:
    """The broker's result for one batch."""

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

    def __init__(
        self,
        topic,
        topic_id,
        int32_t partition,
        int error_code,
        int64_t base_offset,
        int64_t log_append_time_ms,
        int64_t log_start_offset,
        list record_errors not None,
        error_message,
        int32_t leader_id,
        int32_t leader_epoch,
    ):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    def _fields(self):
        """All fields, in the order of the arguments."""
        return (
            self.topic,
            self.topic_id,
            self.partition,
            self.error_code,
            self.base_offset,
            self.log_append_time_ms,
            self.log_start_offset,
            self.record_errors,
            self.error_message,
            self.leader_id,
            self.leader_epoch,
        )

    def __eq__(self, other):
        if not isinstance(other, PartitionResponse):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = None

    def __repr__(self):
        return f"PartitionResponse{self._fields()}"


cdef struct Cursor:
    const unsigned char* data
    Py_ssize_t at
    Py_ssize_t end
    bint flexible
    int64_t results_left  # results that may still follow: at most those requested
    int64_t errors_left


cpdef tuple read_produce_response(
    int version, object body, int64_t most_results, int64_t most_errors
):
    """(results, throttle in ms, leaders' endpoints) of a response of version 3 to 13.

    An endpoint is a tuple of node id, host, port, rack. More than ``most_results`` partitions,
    or leaders, are refused, and so are more than ``most_errors`` of records.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        cursor.end = view.len
        cursor.flexible = version >= FLEXIBLE_FROM
        cursor.results_left = most_results
        cursor.errors_left = most_errors
        return response(version, &cursor)
    finally:
        PyBuffer_Release(&view)


cdef tuple response(int version, Cursor* cursor):
    cdef list results = []
    cdef list endpoints = []
    cdef int64_t most_endpoints = cursor.results_left
    cdef Py_ssize_t topics = array(cursor, SMALLEST_TOPIC, cursor.results_left)
    cdef Py_ssize_t partitions
    cdef Cursor field
    cdef int32_t throttle
    cdef int64_t tag, previous = -1
    cdef object topic, topic_id
    for _ in range(topics):
        topic = topic_id = None
        if version >= TOPIC_IDS_FROM:
            topic_id = uuid(cursor)
        else:
            topic = string(cursor)
        partitions = array(cursor, SMALLEST_RESULT, cursor.results_left)
        cursor.results_left -= partitions
        for _ in range(partitions):
            results.append(result(version, cursor, topic, topic_id))
        skip_tags(cursor)
    throttle = get_int32(taken(cursor, 4))
    for _ in range(tag_count(cursor)):
        previous = tag = next_tag(cursor, previous, &field)
        if tag == NODE_ENDPOINTS and version >= LEADER_HINTS_FROM:
            endpoints = read_endpoints(&field, most_endpoints)
    return results, throttle, endpoints


cdef PartitionResponse result(int version, Cursor* cursor, object topic, object topic_id):
    cdef const unsigned char* data = taken(
        cursor, SMALLEST_RESULT + 8 if version >= LOG_START_FROM else SMALLEST_RESULT
    )
    cdef PartitionResponse read = PartitionResponse.__new__(PartitionResponse)
    cdef Cursor field
    cdef int64_t tag, previous = -1
    cdef Py_ssize_t errors
    cdef const unsigned char* leader
    read.topic = topic
    read.topic_id = topic_id
    read.partition = get_int32(data)
    read.error_code = get_int16(data + 4)
    read.base_offset = get_int64(data + 6)
    read.log_append_time_ms = get_int64(data + 14)
    read.log_start_offset = get_int64(data + 22) if version >= LOG_START_FROM else -1
    read.record_errors = []
    read.leader_id = read.leader_epoch = -1
    if version >= RECORD_ERRORS_FROM:
        errors = array(cursor, SMALLEST_RECORD_ERROR, cursor.errors_left)
        cursor.errors_left -= errors
        for _ in range(errors):
            read.record_errors.append((get_int32(taken(cursor, 4)), nullable_string(cursor)))
            skip_tags(cursor)
        read.error_message = nullable_string(cursor)
    for _ in range(tag_count(cursor)):
        previous = tag = next_tag(cursor, previous, &field)
        if tag == LEADER_HINT and version >= LEADER_HINTS_FROM:
            leader = taken(&field, 8)
            read.leader_id = get_int32(leader)
            read.leader_epoch = get_int32(leader + 4)
            skip_tags(&field)
    return read


cdef list read_endpoints(Cursor* cursor, int64_t most):
    cdef list endpoints = []
    for _ in range(array(cursor, SMALLEST_ENDPOINT, most)):
        node_id = get_int32(taken(cursor, 4))
        host = string(cursor)
        port = get_int32(taken(cursor, 4))
        endpoints.append((node_id, host, port, nullable_string(cursor)))
        skip_tags(cursor)
    return endpoints


cdef const unsigned char* taken(Cursor* cursor, int64_t size) except NULL:
    """The address of the next ``size`` bytes; the cursor moves behind them."""
    cdef const unsigned char* data = cursor.data + cursor.at
    if size > cursor.end - cursor.at:
        raise ValueError(
            f"{size} bytes wanted, {cursor.end - cursor.at} left, at byte {cursor.at}"
        )
    cursor.at += size
    return data


cdef int64_t uvarint(Cursor* cursor) except -1:
    """An unsigned 32-bit number in at most 5 groups of 7 bits."""
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        byte = taken(cursor, 1)[0]
        value |= <int64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise ValueError(f"a varint of more than 5 bytes at byte {cursor.at}")
    if value > 0xFFFFFFFF:
        raise ValueError(f"a varint of more than 32 bits at byte {cursor.at}")
    return value


cdef int64_t array(Cursor* cursor, Py_ssize_t smallest_item, int64_t most) except -1:
    """The number of items that follow, at most ``most``, each at least ``smallest_item`` bytes."""
    cdef int64_t count, left
    if cursor.flexible:
        count = uvarint(cursor) - 1
    else:
        count = get_int32(taken(cursor, 4))
    left = cursor.end - cursor.at
    if count < 0:
        raise ValueError(f"an array of {count} items at byte {cursor.at}")
    if count * smallest_item > left:
        raise ValueError(f"an array of {count} items in {left} bytes at byte {cursor.at}")
    if count > most:
        raise ValueError(f"{count} items where {most} are the most to be expected")
    return count


cdef object nullable_string(Cursor* cursor):
    cdef int64_t size
    cdef const unsigned char* data
    cdef str text
    if cursor.flexible:
        size = uvarint(cursor) - 1
    else:
        size = get_int16(taken(cursor, 2))
    if size == -1:
        return None
    if size < 0:
        raise ValueError(f"a string of {size} bytes at byte {cursor.at}")
    if size == 0:
        return ""
    data = taken(cursor, size)
    try:
        if size > LONGEST_STRING:
            return decoded(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))
        text = PyUnicode_DecodeUTF8(<const char*>data, size, NULL)
        return text if text.isprintable() else printable(text)
    except UnicodeDecodeError:
        raise ValueError(f"a string that is not UTF-8 at byte {cursor.at}") from None


cdef object string(Cursor* cursor):
    cdef object text = nullable_string(cursor)
    if text is None:
        raise ValueError(f"null where a string must be at byte {cursor.at}")
    return text


cdef object uuid(Cursor* cursor):
    """16 bytes; None when all are zero: absent."""
    cdef const unsigned char* data = taken(cursor, UUID_BYTES)
    cdef int place
    for place in range(UUID_BYTES):
        if data[place]:
            return PyBytes_FromStringAndSize(<const char*>data, UUID_BYTES)
    return None


cdef int64_t tag_count(Cursor* cursor) except -1:
    """How many tagged fields end this struct."""
    return uvarint(cursor) if cursor.flexible else 0


cdef int64_t next_tag(Cursor* cursor, int64_t previous, Cursor* field) except -1:
    """The next tag; ``field`` becomes its value, and the cursor goes on behind that."""
    cdef int64_t tag = uvarint(cursor)
    cdef int64_t size
    if tag <= previous:
        raise ValueError(f"tag {tag} after tag {previous} at byte {cursor.at}")
    size = uvarint(cursor)
    field.data = cursor.data
    field.at = cursor.at
    field.flexible = cursor.flexible
    taken(cursor, size)
    field.end = cursor.at
    return tag


cdef int skip_tags(Cursor* cursor) except -1:
    """Pass over the tagged fields of a struct in which none is of interest."""
    cdef Cursor field
    cdef int64_t previous = -1
    for _ in range(tag_count(cursor)):
        previous = next_tag(cursor, previous, &field)
    return 0
