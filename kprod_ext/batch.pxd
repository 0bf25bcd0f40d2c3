"""What a batch holds, and the writing of one record, which other modules inline.

With thousands of partitions in use nothing of a batch is in any cache when its next record comes,
and each line that has to be fetched takes longer than writing the record does. So all that writing
a record changes is one line, the ``BatchTail``. The tail of the batch that takes a partition's
records is kept in the ``PartitionQueue``, where the partition is looked up; the tail of any other
batch is in the batch itself.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t

from kprod_ext.buffer_pool cimport BufferPool, Chunk, PooledBuffer, add_chunk, chunk_data
from kprod_ext.record cimport (
    HEADER_SIZE,
    Record,
    body_size,
    payload_size,
    put_record,
    varint_size,
)
from kprod_ext.shared cimport KPROD_HAS_GIL, RecordLock, SharedFlag, release_lock, take_lock

cdef struct BatchTail:
    char* data                  # the batch's memory
    void* builder               # of the batch, NULL: none; its owner keeps it alive
    void* delivery              # of a PartitionQueue: what futures refer to, kept alive by it
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t end                 # where in the memory the next record goes, or the batch ends
    int32_t room                # a record after the first fits if it ends here; 0: ask the builder
    int32_t record_count
    int32_t last_offset         # -1: none
    int32_t max_record_size
    RecordLock lock             # of a PartitionQueue: guards its tail


cdef inline void clear_tail(BatchTail* tail) noexcept nogil:
    """No batch; the lock stays as it is."""
    tail.data = NULL
    tail.builder = tail.delivery = NULL
    tail.base_timestamp = tail.max_timestamp = -1
    tail.end = tail.room = tail.record_count = tail.max_record_size = 0
    tail.last_offset = -1


cdef inline void move_tail(BatchTail* source, BatchTail* tail) noexcept nogil:
    """Move a batch's state. Each tail keeps its own lock and delivery."""
    tail.data = source.data
    tail.builder = source.builder
    tail.base_timestamp = source.base_timestamp
    tail.max_timestamp = source.max_timestamp
    tail.end = source.end
    tail.room = source.room
    tail.record_count = source.record_count
    tail.last_offset = source.last_offset
    tail.max_record_size = source.max_record_size


cdef extern from *:
    BatchTail* kprod_get(BatchTail* place) noexcept nogil           # see shared.pxd
    void kprod_put(BatchTail* place, BatchTail* address) noexcept nogil

cdef enum:
    NO_ROOM = 0             # of the bytes a record took: none, the batch takes no more
    REFUSED = -1            # it is not one a batch can hold, or the batch is not one
    ASK_LOCKED = -2         # none yet: the batch may have to ask the pool, which needs its lock
    NO_COMPRESSION = 0


@cython.no_gc           # refers to a buffer and its pool, neither of which refers to it
cdef class MemoryRecordsBuilder:
    cdef BatchTail* _tail               # _own, or that of the PartitionQueue it is open in
    cdef BatchTail _own
    cdef PooledBuffer _buffer
    cdef BufferPool _pool               # None: the buffer may not grow
    cdef Py_ssize_t _write_limit        # bytes that the batch takes records up to
    cdef Py_ssize_t _full_size          # bytes from which on it is full: no more than the limit
    cdef bint _was_full                 # the record that made it so was told of
    cdef Py_ssize_t _first_capacity     # of the buffer, before it grew
    cdef Py_ssize_t _memory_end         # where the memory at hand ends, as an offset in the batch
    cdef Py_ssize_t _chunk_start        # where the content of the last chunk begins, likewise
    cdef Py_ssize_t _first_used         # bytes of the batch before the first chunk
    cdef Py_ssize_t _saved              # bytes that the records lost when they were compressed
    cdef double _expansion              # estimated compressed bytes per uncompressed byte
    cdef readonly double actual_compression_ratio
    cdef readonly int compression
    cdef readonly SharedFlag closed_for_append
    cdef readonly SharedFlag is_compressed  # its records are as they will be sent
    cdef readonly bint is_closed
    cdef int64_t _producer_id
    cdef int16_t _producer_epoch
    cdef int32_t _base_sequence
    cdef bint _transactional

    cpdef void close_for_append(self) noexcept
    cpdef void set_producer_state(
        self,
        int64_t producer_id,
        int16_t producer_epoch,
        int32_t base_sequence,
        bint transactional=*,
    ) except *
    cpdef void compress(self, object compress=*) except *
    cpdef void close(self, object compress=*) except *
    cpdef void reopen_producer_state(
        self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence
    ) except *
    cpdef object build(self)
    cpdef list pieces(self)

    # For compiled callers: as take_record, but it raises where that says REFUSED; and that raising.
    cdef Py_ssize_t try_append_record(self, const Record* record) except -1
    cdef int refuse(self, const Record* record) except -1

    cdef Py_ssize_t _append(self, const Record* record) except -1
    cdef Py_ssize_t _body_size(self, int64_t offset, const Record* record) except -1
    cdef bint _has_to_compress(self) except -1
    cdef object _records(self)
    cdef int _become(self, object compressed) except -1
    cdef int _give_up_excess(self) except -1
    cdef uint32_t _checksum(self) except? 0
    cdef int _seal(self) except -1
    cdef int _check_usable(self) except -1


cpdef Py_ssize_t batch_size_upper_bound(
    object key, object value, object headers=*
) except -1


# For PartitionQueue: records are written at another tail from now on, and at the builder's own
# again.
# The caller holds the other's lock.

@cython.nonecheck(False)
cdef inline void lend_tail(MemoryRecordsBuilder builder, BatchTail* tail) noexcept nogil:
    move_tail(builder._tail, tail)
    kprod_put(builder._tail, tail)


@cython.nonecheck(False)
cdef inline void take_tail_back(MemoryRecordsBuilder builder) noexcept nogil:
    move_tail(builder._tail, &builder._own)
    kprod_put(builder._tail, &builder._own)


# What each record passes through is here, so that the modules that write records contain it. What
# checks for None could not raise it without the interpreter; a builder is never None here.

@cython.nonecheck(False)
cdef inline Py_ssize_t uncompressed_size(MemoryRecordsBuilder builder) noexcept nogil:
    return builder._tail.end - HEADER_SIZE + builder._saved


@cython.nonecheck(False)
cdef inline Py_ssize_t estimated_bytes_written(MemoryRecordsBuilder builder) noexcept nogil:
    if builder.compression == NO_COMPRESSION or builder.is_compressed:
        return builder._tail.end
    return HEADER_SIZE + <Py_ssize_t>(<double>uncompressed_size(builder) * builder._expansion)


@cython.nonecheck(False)
cdef inline bint is_full(MemoryRecordsBuilder builder) noexcept nogil:
    """Whether it should leave, though it may take more records until it does."""
    return builder.closed_for_append or (
        builder._tail.record_count > 0
        and (builder._was_full or builder._full_size <= estimated_bytes_written(builder))
    )


# For readers of a batch that other threads may write to or close: a tail that is held does not
# change. With a GIL, or for a batch that is open nowhere, no lock is taken.

@cython.nonecheck(False)
cdef inline BatchTail* hold_tail(MemoryRecordsBuilder builder) noexcept nogil:
    cdef BatchTail* tail = kprod_get(builder._tail)
    while not KPROD_HAS_GIL and tail != &builder._own:
        take_lock(&tail.lock)
        if tail == kprod_get(builder._tail):
            break
        release_lock(&tail.lock)
        tail = kprod_get(builder._tail)
    return tail


@cython.nonecheck(False)
cdef inline void let_go_of_tail(MemoryRecordsBuilder builder, BatchTail* tail) noexcept nogil:
    if not KPROD_HAS_GIL and tail != &builder._own:
        release_lock(&tail.lock)


cdef inline int32_t seen_count(MemoryRecordsBuilder builder) noexcept nogil:
    cdef BatchTail* tail = hold_tail(builder)
    cdef int32_t count = tail.record_count
    let_go_of_tail(builder, tail)
    return count


cdef inline bint seen_full(MemoryRecordsBuilder builder) noexcept nogil:
    cdef BatchTail* tail = hold_tail(builder)
    cdef bint full = is_full(builder)
    let_go_of_tail(builder, tail)
    return full


cdef inline Py_ssize_t seen_bytes(MemoryRecordsBuilder builder) noexcept nogil:
    cdef BatchTail* tail = hold_tail(builder)
    cdef Py_ssize_t size = estimated_bytes_written(builder)
    let_go_of_tail(builder, tail)
    return size


cdef inline bint has_filled(BatchTail* tail, Py_ssize_t nbytes) noexcept nogil:
    """Whether the record taken just now, of so many bytes, has made its batch full; one does."""
    return tail.end + nbytes > tail.room and becomes_full(
        <MemoryRecordsBuilder>tail.builder, nbytes
    )


@cython.nonecheck(False)
cdef inline bint becomes_full(MemoryRecordsBuilder builder, Py_ssize_t nbytes) noexcept nogil:
    """The part of has_filled that few records reach.

    A batch that could grow is full before it has to: when one more such record would not fit.
    """
    cdef Py_ssize_t size
    if builder._was_full:
        return False
    size = estimated_bytes_written(builder)
    if is_growing(builder):
        size += nbytes - 1
    builder._was_full = builder._full_size <= size
    set_room(builder)
    return builder._was_full


@cython.nonecheck(False)
cdef inline bint is_growing(MemoryRecordsBuilder builder) noexcept nogil:
    """Whether it takes chunks: records as they are sent, and more of them than make it full."""
    return (
        builder._full_size < builder._write_limit
        and builder.compression == NO_COMPRESSION
        and builder._pool is not None
    )


@cython.nonecheck(False)
cdef inline bint has_room_for(
    MemoryRecordsBuilder builder, int64_t offset, Py_ssize_t size
) noexcept nogil:
    """Whether a record of so many bytes is within the limits, wherever its memory may be.

    The write limit holds from the second record on: a batch always takes one.
    """
    if builder.closed_for_append or offset > INT32_MAX:
        return False
    return (
        builder._tail.record_count == 0
        or estimated_bytes_written(builder) + size <= builder._write_limit
    )


@cython.nonecheck(False)
cdef inline bint grow_for(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Enlarge the buffer, for records that will be compressed: all at once, so all in a row.

    Or for the first record of any batch, which takes one whatever its size.
    """
    cdef Py_ssize_t end = builder._tail.end + size
    cdef Py_ssize_t whole
    if builder._pool is None or builder.compression == NO_COMPRESSION:
        return builder._tail.record_count == 0 and builder._buffer.pool.try_grow(
            builder._buffer, end, 0
        )
    # At once what a full batch is expected to take, if memory is plentiful, else half as much
    # again: a batch shall be moved a few times at most, not once per record.
    whole = HEADER_SIZE + <Py_ssize_t>min(<double>builder._full_size / builder._expansion, 1e9)
    return (
        (whole > end and builder._pool.try_grow(builder._buffer, whole, builder._pool.total // 2))
        or builder._pool.try_grow(builder._buffer, end + end // 2, 0)
        or builder._pool.try_grow(builder._buffer, end, 0)
    )


@cython.nonecheck(False)
cdef inline void leave_chunk(MemoryRecordsBuilder builder) noexcept nogil:
    """Note how much of the memory at hand is used: no record comes behind the last one there."""
    if builder._buffer.chunks == NULL:
        builder._first_used = builder._tail.end
    else:
        builder._buffer.last_chunk.used = builder._tail.end - builder._chunk_start


@cython.nonecheck(False)
cdef inline bint go_on_in_chunk(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Let the next record, of so many bytes, begin a chunk; False: the pool has none now."""
    cdef Chunk* chunk
    cdef Py_ssize_t end = builder._tail.end
    # From here on every append takes the tail's lock: a thread that waits for the pool's lock lets
    # go of the GIL.
    builder._tail.room = 0
    leave_chunk(builder)
    chunk = add_chunk(builder._pool, builder._buffer, size)
    if chunk == NULL:
        return False
    builder._chunk_start = end
    builder._memory_end = end + chunk.size - <Py_ssize_t>sizeof(Chunk)
    # As if the whole batch lay before the chunk: its records are at their offset from there.
    builder._tail.data = chunk_data(chunk) - end
    set_room(builder)
    return True


@cython.nonecheck(False)
cdef inline bint has_memory(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Whether size more bytes fit, in a row; for that the batch may take more memory."""
    cdef Py_ssize_t end = builder._tail.end + size
    if end <= builder._memory_end or end > INT32_MAX:
        return end <= INT32_MAX
    if is_growing(builder):
        return go_on_in_chunk(builder, size)
    if not grow_for(builder, size):
        return False
    builder._tail.data = builder._buffer.data
    builder._memory_end = builder._buffer.capacity
    return True


@cython.nonecheck(False)
cdef inline Py_ssize_t make_room(
    MemoryRecordsBuilder builder, int64_t offset, Py_ssize_t size
) noexcept nogil:
    """The part of take_record_at that few records reach: 1, NO_ROOM or REFUSED."""
    if builder.closed_for_append:
        return NO_ROOM
    if builder._buffer.given_back:
        return REFUSED
    if not has_room_for(builder, offset, size) or not has_memory(builder, size):
        builder.closed_for_append = True
        builder._tail.room = 0
        return NO_ROOM
    if builder._tail.end >= builder._full_size:     # a bulk call does not look after each record
        set_room(builder)
    return 1


@cython.nonecheck(False)
cdef inline void set_room(MemoryRecordsBuilder builder) noexcept nogil:
    """Most records need not ask for more than where they end."""
    cdef Py_ssize_t room = 0
    if builder.compression == NO_COMPRESSION:
        room = builder._full_size
        if builder._was_full or builder._tail.end >= room:
            room = builder._write_limit
        room = max(min(min(room, builder._memory_end), <Py_ssize_t>INT32_MAX), 0)
    builder._tail.room = <int32_t>room


cdef inline bint put_next(
    BatchTail* tail, int64_t offset, const Record* record, Py_ssize_t body, Py_ssize_t size
) noexcept nogil:
    """Write a record that fits. False when it took other than its size: a mistake of kprod's."""
    cdef int64_t delta = 0
    cdef char* start = tail.data + tail.end
    cdef char* end
    if tail.record_count == 0:
        tail.base_timestamp = record.timestamp_ms
    else:
        delta = record.timestamp_ms - tail.base_timestamp
    end = put_record(start, record, body, delta, offset)
    tail.max_timestamp = max(tail.max_timestamp, record.timestamp_ms)
    # A batch takes less than 2 GiB in all.
    tail.max_record_size = max(tail.max_record_size, <int32_t>size)
    tail.record_count += 1
    tail.end += <int32_t>size
    tail.last_offset = <int32_t>offset
    return end - start == size


cdef inline Py_ssize_t take_record_at(
    BatchTail* tail, const Record* record, bint locked
) noexcept nogil:
    """Write a record: the bytes it takes, NO_ROOM, REFUSED or, if not locked, ASK_LOCKED."""
    cdef int64_t offset = <int64_t>tail.last_offset + 1
    cdef int64_t delta = 0
    cdef Py_ssize_t body = payload_size(record)
    cdef Py_ssize_t size, verdict
    if body < 0 or record.timestamp_ms < 0:
        return REFUSED
    if tail.record_count > 0:
        delta = record.timestamp_ms - tail.base_timestamp
    body = body_size(body, delta, offset)
    if body > INT32_MAX:
        return REFUSED
    size = varint_size(body) + body
    if tail.record_count == 0 or tail.end + size > tail.room or offset > INT32_MAX:
        if not locked:
            return ASK_LOCKED
        verdict = make_room(<MemoryRecordsBuilder>tail.builder, offset, size)
        if verdict <= 0:
            return verdict
    return size if put_next(tail, offset, record, body, size) else REFUSED


@cython.nonecheck(False)
cdef inline Py_ssize_t take_record(
    MemoryRecordsBuilder builder, const Record* record
) noexcept nogil:
    """As take_record_at, also where it is not known whether the batch still has its memory."""
    if builder._buffer.given_back and not builder.closed_for_append:
        return REFUSED
    return take_record_at(builder._tail, record, True)


cdef class ProducerBatch(MemoryRecordsBuilder):
    cdef public object tp
    cdef public object delivery         # what becomes of its records: see kprod.buffer.delivery
    cdef readonly double created_at
    cdef public Py_ssize_t attempts
    cdef public double last_attempt_at
    cdef public double retry_at
    cdef readonly object last_error
    cdef public object attempted_leader
    cdef public object producer
    cdef public int32_t base_sequence
    cdef public object sequences        # of its partition: for Sequences, once it looked them up
    cdef public tuple drain_order
    cdef public bint in_line            # among those that were sent and have no outcome
    cdef public bint maybe_written
    cdef public bint on_wire
    cdef public bint overtaken
    cdef public SharedFlag is_taken     # by the sender, from its queue: no caller compresses it
    cdef ProducerBatch following        # in its queue; guarded by the queue's lock
