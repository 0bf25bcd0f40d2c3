# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Produce on the wire: the request's frame around its batches, and the response from bytes.

Every length and count in a response is compared with the bytes that are left before anything is
read or allocated. Malformed bytes raise ValueError saying what was found, and where.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kprod_ext.endian cimport get_int16, get_int32, get_int64, put_int32

cdef enum:
    LOG_START_FROM = 5          # versions
    RECORD_ERRORS_FROM = 8
    FLEXIBLE_FROM = 9
    LEADER_HINTS_FROM = 10
    TOPIC_IDS_FROM = 13
    FRAME_SIZE_BYTES = 4
    CORRELATION_ID_AT = 8
    LONGEST_VARINT = 5
    SMALLEST_TOPIC = 2          # bytes: empty strings and arrays
    SMALLEST_RESULT = 22
    SMALLEST_RECORD_ERROR = 5
    SMALLEST_ENDPOINT = 11
    UUID_BYTES = 16
    LEADER_HINT = 0             # tags
    NODE_ENDPOINTS = 0


# The request ----------------------------------------------------------------------------------


def frame_produce(bytes head not None, int version, int32_t correlation_id, list topics not None):
    """The pieces of a request: see ``kprod.wire.produce.encode_produce_request``.

    ``head``: all that comes before the topics. ``topics``: (encoded name or id, batches), where
    what is at 2 of a batch is its partition, and at 3 its records.
    """
    cdef bint flexible = version >= FLEXIBLE_FROM
    cdef bytearray out = bytearray(head)
    cdef list pieces = []
    cdef Py_ssize_t size = 0
    cdef bytes piece
    put_length(out, len(topics), flexible)
    for name, batches in topics:
        out += <bytes>name
        put_length(out, len(batches), flexible)
        for batch in batches:
            put_fixed(out, batch[2])
            records = batch[3]
            put_length(out, len(records), flexible)
            size += len(out) + len(records)
            pieces.append(bytes(out))
            pieces.append(records)
            out.clear()
            put_no_tags(out, flexible)
        put_no_tags(out, flexible)
    put_no_tags(out, flexible)
    size += len(out)
    if out:
        pieces.append(bytes(out))
    piece = pieces[0]
    pieces[0] = headed(piece, <int32_t>(size - FRAME_SIZE_BYTES), correlation_id)
    return pieces


cdef bytes headed(bytes piece, int32_t size, int32_t correlation_id):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(piece))
    cdef char* data = PyBytes_AS_STRING(made)
    memcpy(data, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    put_int32(data, size)
    put_int32(data + CORRELATION_ID_AT, correlation_id)
    return made


cdef int put_fixed(bytearray out, int32_t value) except -1:
    cdef char data[4]
    put_int32(data, value)
    out += data[:4]
    return 0


cdef int put_length(bytearray out, Py_ssize_t length, bint flexible) except -1:
    """A length: four bytes, or one more as a varint (KIP-482)."""
    cdef char data[LONGEST_VARINT]
    cdef int used = 0
    if not flexible:
        return put_fixed(out, <int32_t>length)
    length += 1
    while length > 0x7F:
        data[used] = <char>((length & 0x7F) | 0x80)
        used += 1
        length >>= 7
    data[used] = <char>length
    out += data[:used + 1]
    return 0


cdef int put_no_tags(bytearray out, bint flexible) except -1:
    if flexible:
        out.append(0)
    return 0


# The response ---------------------------------------------------------------------------------


cdef struct Cursor:
    const unsigned char* data
    Py_ssize_t at
    Py_ssize_t end
    bint flexible


def read_produce_response(int version, body):
    """(results, throttle in ms, leaders' endpoints) of a response of version 3 to 13.

    A result is a tuple of topic, topic id (16 bytes), partition, error code, base offset, append
    time, log start offset, errors by record, message, leader id, leader epoch. An endpoint is one
    of node id, host, port, rack.
    """
    cdef Py_buffer view
    cdef Cursor cursor
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        cursor.data = <const unsigned char*>view.buf
        cursor.at = 0
        cursor.end = view.len
        cursor.flexible = version >= FLEXIBLE_FROM
        return response(version, &cursor)
    finally:
        PyBuffer_Release(&view)


cdef tuple response(int version, Cursor* cursor):
    cdef list results = []
    cdef list endpoints = []
    cdef Py_ssize_t topics = array(cursor, SMALLEST_TOPIC)
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
        partitions = array(cursor, SMALLEST_RESULT)
        for _ in range(partitions):
            results.append(result(version, cursor, topic, topic_id))
        skip_tags(cursor)
    throttle = get_int32(taken(cursor, 4))
    for _ in range(tag_count(cursor)):
        previous = tag = next_tag(cursor, previous, &field)
        if tag == NODE_ENDPOINTS and version >= LEADER_HINTS_FROM:
            endpoints = read_endpoints(&field)
    return results, throttle, endpoints


cdef tuple result(int version, Cursor* cursor, object topic, object topic_id):
    cdef const unsigned char* data = taken(
        cursor, SMALLEST_RESULT + 8 if version >= LOG_START_FROM else SMALLEST_RESULT
    )
    cdef int64_t log_start = get_int64(data + 22) if version >= LOG_START_FROM else -1
    cdef list record_errors = []
    cdef object message = None
    cdef Cursor field
    cdef int32_t leader_id = -1, leader_epoch = -1
    cdef int64_t tag, previous = -1
    cdef const unsigned char* leader
    if version >= RECORD_ERRORS_FROM:
        for _ in range(array(cursor, SMALLEST_RECORD_ERROR)):
            record_errors.append((get_int32(taken(cursor, 4)), nullable_string(cursor)))
            skip_tags(cursor)
        message = nullable_string(cursor)
    for _ in range(tag_count(cursor)):
        previous = tag = next_tag(cursor, previous, &field)
        if tag == LEADER_HINT and version >= LEADER_HINTS_FROM:
            leader = taken(&field, 8)
            leader_id = get_int32(leader)
            leader_epoch = get_int32(leader + 4)
            skip_tags(&field)
    return (
        topic,
        topic_id,
        get_int32(data),
        get_int16(data + 4),
        get_int64(data + 6),
        get_int64(data + 14),
        log_start,
        record_errors,
        message,
        leader_id,
        leader_epoch,
    )


cdef list read_endpoints(Cursor* cursor):
    cdef list endpoints = []
    for _ in range(array(cursor, SMALLEST_ENDPOINT)):
        node_id = get_int32(taken(cursor, 4))
        host = string(cursor)
        port = get_int32(taken(cursor, 4))
        endpoints.append((node_id, host, port, nullable_string(cursor)))
        skip_tags(cursor)
    return endpoints


cdef const unsigned char* taken(Cursor* cursor, int64_t size) except NULL:
    """Where the next ``size`` bytes are; they are behind the cursor then."""
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


cdef int64_t array(Cursor* cursor, Py_ssize_t smallest_item) except -1:
    """The number of items that follow, each taking at least ``smallest_item`` bytes."""
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
    return count


cdef object nullable_string(Cursor* cursor):
    cdef int64_t size
    cdef const unsigned char* data
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
        return PyUnicode_DecodeUTF8(<const char*>data, size, NULL)
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
