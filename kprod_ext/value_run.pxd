"""Values without anything else, one after the other into a batch.

Such records have no key, no headers and one timestamp. So what ``take_record`` looks at for each
record is looked at once for all of them, and a record is written as ``record_layout`` has it.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kprod_ext.batch_header cimport HEADER_SIZE
from kprod_ext.batch_tail cimport BatchTail
from kprod_ext.prefetch cimport CACHE_LINE, kprod_prefetch
from kprod_ext.record_layout cimport (
    RECORD_OVERHEAD,
    Field,
    Record,
    body_size,
    payload_size,
    put_record,
)
from kprod_ext.records_builder cimport MemoryRecordsBuilder

cdef enum:
    FAR = 8                 # values whose memory is asked for before their turn
    LARGEST_VALUE = 4096    # larger ones are left to others: there the copying takes the time
    AROUND_VALUE = RECORD_OVERHEAD + 7      # a null key, the value's length, no headers


cdef inline Py_ssize_t certain_room(MemoryRecordsBuilder builder) noexcept nogil:
    """Where records may end that are surely within the limit and the memory at hand, as an offset.

    The limit is one of the batch as it will be: the estimate may be less than what is written.
    """
    cdef Py_ssize_t room = builder._write_limit
    if builder.compression != 0:
        # At most one record counts in full, all others as they are estimated to be compressed.
        room = builder._write_limit - HEADER_SIZE - LARGEST_VALUE - AROUND_VALUE
        room = HEADER_SIZE + <Py_ssize_t>(<double>max(room, 0) / builder._expansion)
    return min(min(room, builder._memory_end), <Py_ssize_t>INT32_MAX)


cdef inline Py_ssize_t take_values(
    MemoryRecordsBuilder builder,
    const Field* values,
    Py_ssize_t count,
    int64_t now,
    Py_ssize_t most,
) noexcept nogil:
    """Append values until one might not fit, or the records have ``most`` bytes; how many.

    The caller tries the next one by ``take_record``; also the first of a batch.
    """
    cdef BatchTail* tail = builder._tail
    cdef char* start = tail.data + tail.end
    cdef char* out = start
    cdef char* before
    cdef Record record
    cdef Py_ssize_t left = certain_room(builder) - tail.end
    cdef Py_ssize_t offset = tail.record_count
    cdef int64_t delta = now - tail.base_timestamp
    cdef Py_ssize_t largest = tail.max_record_size
    cdef Py_ssize_t body, written
    cdef Py_ssize_t i = 0
    if builder.closed_for_append or builder._buffer.given_back:
        return 0
    if offset == 0 or tail.last_offset != offset - 1 or count > INT32_MAX - offset:
        return 0
    record.timestamp_ms = now
    record.key.data = NULL
    record.key.size = -1
    record.headers = NULL
    record.header_count = 0
    while i < count and out - start < most:
        if i + FAR < count:
            kprod_prefetch(values[i + FAR].data)
            kprod_prefetch(values[i + FAR].data + CACHE_LINE)
        record.value = values[i]
        if (
            record.value.size > LARGEST_VALUE
            or (out - start) + record.value.size + AROUND_VALUE > left
        ):
            break
        before = out
        body = body_size(payload_size(&record), delta, offset)
        out = put_record(out, &record, body, delta, offset)
        largest = max(largest, out - before)
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
