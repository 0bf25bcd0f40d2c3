"""One record of a v2 batch: measured once, then written in exactly that many bytes.

    varint length of all that follows
    int8   attributes, 0
    varint timestamp delta, against the batch's base timestamp
    varint offset delta, against the batch's base offset
    field  key
    field  value
    varint number of headers
    then per header: field key (UTF-8, never null), field value

where a field is a varint length, -1 for null, and that many bytes.
"""

from libc.stdint cimport INT32_MAX, int64_t

from kprod_ext.batch_header cimport HEADER_SIZE
from kprod_ext.short_copy cimport kprod_copy
from kprod_ext.varint cimport put_varint, varint_size

cdef enum:
    RECORD_OVERHEAD = 21    # at most: length 5, attributes 1, timestamp delta 10, offset delta 5
    LENGTHS = 15            # at most: the lengths of key and value 5 each, the number of headers 5
    HEADER_LENGTHS = 10     # at most: the lengths of a header's name and value


cdef extern from *:
    int64_t NO_TIME "INT64_MIN"     # of a record that is stamped when it is written


cdef struct Field:
    const char* data
    Py_ssize_t size             # bytes; -1 is null


cdef struct Record:
    int64_t timestamp_ms
    Field key
    Field value
    const Field* headers        # key, value, key, value ...: twice header_count of them
    Py_ssize_t header_count


cdef inline Py_ssize_t field_size(const Field* field) noexcept nogil:
    return 1 if field.size < 0 else varint_size(field.size) + field.size


cdef inline Py_ssize_t payload_size(const Record* record) noexcept nogil:
    """Bytes of key, value and headers, lengths included; -1 when beyond what int32 can say.

    No sum overflows: a field is refused before it is added, and the count is refused before
    the headers are walked.
    """
    cdef Py_ssize_t size, i
    if record.key.size > INT32_MAX or record.value.size > INT32_MAX:
        return -1
    size = field_size(&record.key) + field_size(&record.value) + varint_size(record.header_count)
    for i in range(2 * record.header_count):
        if record.headers[i].size > INT32_MAX or size > INT32_MAX:
            return -1
        size += field_size(&record.headers[i])
    return size if size <= INT32_MAX else -1


cdef inline Py_ssize_t batch_bound(const Record* record) noexcept nogil:
    """Bytes of a batch with this one record at most, whatever its timestamp and offset.

    As Kafka's ``AbstractRecords.estimateSizeInBytesUpperBound``; -1: the format does not allow it.
    """
    cdef Py_ssize_t payload = payload_size(record)
    return HEADER_SIZE + RECORD_OVERHEAD + payload if payload >= 0 else -1


cdef inline Py_ssize_t surely_within(Py_ssize_t largest) noexcept nogil:
    """Bytes of key, value and headers for which batch_bound is ``largest`` at most.

    HEADER_LENGTHS count for each header besides its name and value.
    """
    return largest - HEADER_SIZE - RECORD_OVERHEAD - LENGTHS


cdef inline Py_ssize_t checked_payload(const Record* record) except -1:
    cdef Py_ssize_t payload = payload_size(record)
    if payload < 0:
        raise ValueError("the record is larger than the format allows (2 GiB)")
    return payload


cdef inline Py_ssize_t body_size(
    Py_ssize_t payload, int64_t timestamp_delta, int64_t offset_delta
) noexcept nogil:
    """Bytes after the record's own length."""
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + payload


cdef inline char* put_field(char* out, const Field* field) noexcept nogil:
    out = put_varint(out, field.size)
    if field.size > 0:          # an empty field may have no address
        kprod_copy(out, field.data, <size_t>field.size)
        out += field.size
    return out


cdef inline char* put_record(
    char* out,
    const Record* record,
    Py_ssize_t body,
    int64_t timestamp_delta,
    int64_t offset_delta,
) noexcept nogil:
    """Write the record at out and return the position after it; body is from body_size."""
    cdef Py_ssize_t i
    out = put_varint(out, body)
    out[0] = 0
    out = put_varint(out + 1, timestamp_delta)
    out = put_varint(out, offset_delta)
    out = put_field(out, &record.key)
    out = put_field(out, &record.value)
    out = put_varint(out, record.header_count)
    for i in range(2 * record.header_count):
        out = put_field(out, &record.headers[i])
    return out
