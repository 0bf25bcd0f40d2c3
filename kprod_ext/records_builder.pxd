cimport cython
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t

from kprod_ext.batch_header cimport HEADER_SIZE
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.record_layout cimport (
    RECORD_OVERHEAD,
    Record,
    body_size,
    payload_size,
    put_record,
)
from kprod_ext.varint cimport varint_size

cdef enum:
    NO_ROOM = 0             # of the bytes a record took: none, the batch takes no more
    REFUSED = -1            # it is not one a batch can hold, or the batch is not one
    NO_COMPRESSION = 0


@cython.final
@cython.no_gc           # refers to a buffer and its pool, neither of which refers to it
cdef class MemoryRecordsBuilder:
    # What an append touches comes first, close together.
    cdef PooledBuffer _buffer
    cdef Py_ssize_t _end                # where the next record goes, or where the batch ends
    cdef readonly Py_ssize_t uncompressed_bytes
    cdef Py_ssize_t _write_limit
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly Py_ssize_t max_record_size
    cdef readonly int32_t record_count
    cdef int32_t _last_offset           # -1: none
    cdef readonly int compression
    cdef readonly bint closed_for_append
    cdef double _expansion              # estimated compressed bytes per uncompressed byte

    cdef BufferPool _pool               # None: the buffer may not grow
    cdef Py_ssize_t _first_capacity     # of the buffer, before it grew
    cdef readonly double actual_compression_ratio
    cdef readonly bint is_packed        # its records are as they will be sent
    cdef readonly bint is_closed
    cdef int64_t _producer_id
    cdef int16_t _producer_epoch
    cdef int32_t _base_sequence
    cdef bint _transactional
    cdef bint _is_summed
    cdef uint32_t _records_sum      # if so: the checksum of the records

    cpdef void close_for_append(self) noexcept
    cpdef void set_producer_state(
        self,
        int64_t producer_id,
        int16_t producer_epoch,
        int32_t base_sequence,
        bint transactional=*,
    ) except *
    cpdef void pack(self, object compress=*) except *
    cpdef void close(self, object compress=*) except *
    cpdef void reopen_producer_state(
        self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence
    ) except *
    cpdef object build(self)

    # For compiled callers: as take_record, but it raises where that says REFUSED; and that raising.
    cdef Py_ssize_t try_append_record(self, const Record* record) except -1
    cdef int refuse(self, const Record* record) except -1

    # For whoever has just written the last record, which is still in the processor's caches.
    cdef void sum_records(self) noexcept nogil

    cdef Py_ssize_t _append(self, int64_t offset, const Record* record) except -1
    cdef Py_ssize_t _body_size(self, int64_t offset, const Record* record) except -1
    cdef bint _grow_for(self, Py_ssize_t size) noexcept nogil
    cdef bint _has_to_compress(self) except -1
    cdef object _records(self)
    cdef int _become(self, object compressed) except -1
    cdef int _give_up_excess(self) except -1
    cdef uint32_t _checksum(self) except? 0
    cdef int _seal(self) except -1
    cdef int _check_usable(self) except -1


cpdef int pack_several(list builders, object several) except -1
cpdef Py_ssize_t batch_size_upper_bound(
    object key, object value, object headers=*
) except -1


# What each record passes through is here, so that the modules that write records contain it. What
# checks for None could not raise it without the interpreter; a builder is never None here.

@cython.nonecheck(False)
cdef inline Py_ssize_t estimated_bytes(MemoryRecordsBuilder builder) noexcept nogil:
    if builder.compression == NO_COMPRESSION:
        return HEADER_SIZE + builder.uncompressed_bytes
    if builder.is_packed:
        return builder._end
    return HEADER_SIZE + <Py_ssize_t>(<double>builder.uncompressed_bytes * builder._expansion)


@cython.nonecheck(False)
cdef inline bint is_full(MemoryRecordsBuilder builder) noexcept nogil:
    return builder.closed_for_append or (
        builder.record_count > 0 and builder._write_limit <= estimated_bytes(builder)
    )


@cython.nonecheck(False)
cdef inline bint is_within_limit(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """The limit holds from the second record on: a batch always takes one."""
    return builder.record_count == 0 or estimated_bytes(builder) + size <= builder._write_limit


@cython.nonecheck(False)
cdef inline bint has_memory(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Whether size more bytes fit; records to be compressed may make the buffer grow."""
    cdef Py_ssize_t end = builder._end + size
    if end > INT32_MAX:
        return False
    return end <= builder._buffer.capacity or builder._grow_for(size)


@cython.nonecheck(False)
cdef inline bint put_next(
    MemoryRecordsBuilder builder,
    int64_t offset,
    const Record* record,
    Py_ssize_t body,
    Py_ssize_t size,
) noexcept nogil:
    """Write a record there is room for. False when it did not take its size: a mistake of ours."""
    cdef int64_t delta = 0
    cdef char* start = builder._buffer.data + builder._end
    cdef char* end
    if builder.record_count == 0:
        builder.base_timestamp = record.timestamp_ms
    else:
        delta = record.timestamp_ms - builder.base_timestamp
    end = put_record(start, record, body, delta, offset)
    builder.max_timestamp = max(builder.max_timestamp, record.timestamp_ms)
    builder.max_record_size = max(builder.max_record_size, size)
    builder.record_count += 1
    builder.uncompressed_bytes += size
    builder._end += size
    builder._last_offset = <int32_t>offset
    return end - start == size


@cython.nonecheck(False)
cdef inline Py_ssize_t take_record(
    MemoryRecordsBuilder builder, const Record* record
) noexcept nogil:
    """Write a record: the bytes it takes, NO_ROOM, or REFUSED."""
    cdef int64_t offset = <int64_t>builder._last_offset + 1
    cdef int64_t delta = 0
    cdef Py_ssize_t body = payload_size(record)
    cdef Py_ssize_t size
    if body < 0 or record.timestamp_ms < 0:
        return REFUSED
    if builder.record_count > 0:
        delta = record.timestamp_ms - builder.base_timestamp
    body = body_size(body, delta, offset)
    if body > INT32_MAX:
        return REFUSED
    if builder.closed_for_append:
        return NO_ROOM
    if builder._buffer.given_back:
        return REFUSED
    size = varint_size(body) + body
    if (
        offset > INT32_MAX
        or not is_within_limit(builder, size)
        or not has_memory(builder, size)
    ):
        builder.closed_for_append = True
        return NO_ROOM
    return size if put_next(builder, offset, record, body, size) else REFUSED


@cython.nonecheck(False)
cdef inline bint holds_first(MemoryRecordsBuilder builder, const Record* record) noexcept nogil:
    """Whether an empty batch has memory for the record, without growing and whatever its time."""
    cdef Py_ssize_t payload = payload_size(record)
    return (
        payload >= 0
        and builder.record_count == 0
        and HEADER_SIZE + RECORD_OVERHEAD + payload <= builder._buffer.capacity
    )
