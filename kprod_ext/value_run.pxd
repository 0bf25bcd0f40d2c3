"""Values without anything else, one after the other into a batch.

What ``take_record`` works out for each record is the same for all of them: there is no key, no
header, one timestamp. What is left are two lengths, an offset and the bytes.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kprod_ext.batch_header cimport HEADER_SIZE
from kprod_ext.batch_tail cimport BatchTail
from kprod_ext.prefetch cimport CACHE_LINE, kprod_prefetch
from kprod_ext.record_layout cimport RECORD_OVERHEAD, Field
from kprod_ext.records_builder cimport MemoryRecordsBuilder
from kprod_ext.short_copy cimport kprod_copy
from kprod_ext.varint cimport put_varint, varint_size

cdef enum:
    FAR = 8                 # values whose memory is asked for before their turn
    LARGEST_VALUE = 4096    # larger ones are left to others: there the copying takes the time
    AROUND_VALUE = RECORD_OVERHEAD + 7      # a null key, the value's length, no headers


cdef inline char* put_length(char* out, Py_ssize_t length) noexcept nogil:
    """put_varint for what is hardly ever more than two bytes."""
    if 0 <= length < 64:
        out[0] = <char>(length << 1)
        return out + 1
    if 0 <= length < 8192:
        out[0] = <char>(0x80 | ((length << 1) & 0x7F))
        out[1] = <char>(length >> 6)
        return out + 2
    return put_varint(out, length)


cdef inline Py_ssize_t certain_room(MemoryRecordsBuilder builder) noexcept nogil:
    """Where records may end that are surely within the limit, as an offset in the buffer.

    The limit is one of the batch as it will be: the estimate may be less than what is written.
    """
    cdef Py_ssize_t room = builder._write_limit
    if builder.compression != 0:
        # At most one record counts in full, all others as they are estimated to be compressed.
        room = builder._write_limit - HEADER_SIZE - LARGEST_VALUE - AROUND_VALUE
        room = HEADER_SIZE + <Py_ssize_t>(<double>max(room, 0) / builder._expansion)
    return min(min(room, builder._buffer.capacity), <Py_ssize_t>INT32_MAX)


cdef inline Py_ssize_t take_values(
    MemoryRecordsBuilder builder,
    const Field* values,
    Py_ssize_t count,
    int64_t now,
    Py_ssize_t most,
) noexcept nogil:
    """Append values until one might not fit, or the records have ``most`` bytes; how many.

    Whoever calls tries the next one by ``take_record``; also the first of a batch.
    """
    cdef BatchTail* tail = builder._tail
    cdef char* start = tail.data + tail.end
    cdef char* out = start
    cdef char* record
    cdef Py_ssize_t left = certain_room(builder) - tail.end
    cdef Py_ssize_t offset = tail.record_count
    cdef int64_t delta = now - tail.base_timestamp
    cdef Py_ssize_t fixed = 3 + varint_size(delta)      # attributes, null key, no headers
    cdef Py_ssize_t largest = tail.max_record_size
    cdef Py_ssize_t size, body, written
    cdef Py_ssize_t i = 0
    if builder.closed_for_append or builder._buffer.given_back:
        return 0
    if offset == 0 or tail.last_offset != offset - 1 or count > INT32_MAX - offset:
        return 0
    while i < count and out - start < most:
        if i + FAR < count:
            kprod_prefetch(values[i + FAR].data)
            kprod_prefetch(values[i + FAR].data + CACHE_LINE)
        size = values[i].size
        if size > LARGEST_VALUE or (out - start) + size + AROUND_VALUE > left:
            break
        record = out
        body = fixed + varint_size(offset) + varint_size(size) + max(size, 0)
        out = put_length(out, body)
        out[0] = 0
        out = put_length(out + 1, delta)
        out = put_length(out, offset)
        out[0] = 1                                      # -1: null
        out = put_length(out + 1, size)
        if size > 0:
            kprod_copy(out, values[i].data, <size_t>size)
            out += size
        out[0] = 0
        out += 1
        largest = max(largest, out - record)
        offset += 1
        i += 1
    written = out - start
    tail.end += <int32_t>written
    tail.record_count += <int32_t>i
    tail.last_offset += <int32_t>i
    tail.max_record_size = <int32_t>largest
    if i > 0:
        tail.max_timestamp = max(tail.max_timestamp, now)
    return i
