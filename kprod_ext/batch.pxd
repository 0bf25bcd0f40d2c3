"""The fields of a batch, and the writing of one record, which other modules inline.

With thousands of partitions in use no part of a batch is cached when its next record comes, and
fetching one cache line takes longer than writing the record. So besides the bytes of the record an
append changes one cache line only, the ``BatchTail``. The tail of an open batch is that of its
``PartitionQueue``, where an append looks the partition up; the tail of any other batch is in the
batch itself.
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
from kprod_ext.shared cimport (
    AtomicFlag,
    KPROD_HAS_GIL,
    RecordLock,
    SharedFlag,
    release_lock,
    take_lock,
)

cdef struct BatchTail:
    char* data                  # the batch's memory
    # The batch that owns `data`; NULL when no batch is open. PartitionQueue holds the reference.
    void* builder
    void* delivery              # in a PartitionQueue: of the open batch, which keeps it alive
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t end                 # offset of the next record, and size of the batch so far
    # Absolute end offset up to which a record fits without a call to make_room; 0 forces the call.
    int32_t room
    int32_t record_count
    int32_t last_offset         # -1: none
    int32_t max_record_size
    RecordLock lock             # in a PartitionQueue: see there; otherwise unused


cdef inline void clear_tail(BatchTail* tail) noexcept nogil:
    """Detach the tail from any batch. The lock is unchanged."""
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


# Memory of a PartitionQueue's tail. The queue holds it, and so does each batch that was open in
# that queue: without a GIL a thread may read the address of the queue's tail from a batch, stall
# while the batch is closed and ends, and the queue is retired and freed, and then take the tail's
# lock (hold_tail). The lock has to be there still.
@cython.final
@cython.no_gc           # its pointers count no reference
cdef class TailMemory:
    cdef BatchTail* tail                # within _room, in one cache line
    cdef BatchTail[2] _room             # room for one tail aligned to a cache line


cdef enum:
    NO_ROOM = 0             # the batch accepts no more records
    REFUSED = -1            # the record is invalid, or the batch no longer has a buffer
    NO_COMPRESSION = 0


@cython.no_gc           # refers to memory and its pool, neither of which refers to it
cdef class MemoryRecordsBuilder:
    cdef BatchTail* _tail               # _own, or that of the PartitionQueue it is open in
    cdef BatchTail _own
    cdef TailMemory _lent               # of the PartitionQueue it was opened in, if any
    cdef PooledBuffer _buffer
    cdef BufferPool _pool               # None: the buffer may not grow
    cdef Py_ssize_t _write_limit        # size in bytes that records after the first must not exceed
    cdef Py_ssize_t _full_size          # size in bytes at which it is full; at most the write limit
    cdef bint _was_full                 # True after has_filled reported the batch as full once
    cdef Py_ssize_t _first_capacity     # capacity of the buffer before it grew
    cdef Py_ssize_t _memory_end         # offset in the batch where the present memory ends
    cdef Py_ssize_t _chunk_start        # offset in the batch where the last chunk begins
    cdef Py_ssize_t _first_used         # bytes of the batch before the first chunk
    cdef Py_ssize_t _saved              # bytes saved by compression
    cdef double _expansion              # estimated compressed bytes per uncompressed byte
    cdef readonly double actual_compression_ratio
    cdef readonly int compression
    cdef readonly AtomicFlag closed_for_append
    cdef readonly SharedFlag is_compressed  # records are in their final form
    cdef readonly bint is_closed
    cdef uint32_t _records_crc
    cdef bint _is_summed                # _records_crc is that of the records
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

    # try_append_record: as take_record, but raises on REFUSED. refuse: raises that error.
    cdef Py_ssize_t try_append_record(self, const Record* record) except -1
    cdef int refuse(self, const Record* record) except -1

    cdef Py_ssize_t _append(self, const Record* record) except -1
    cdef Py_ssize_t _body_size(self, int64_t offset, const Record* record) except -1
    cdef bint _has_to_compress(self) except -1
    cdef object _records(self)
    cdef int _become(self, object compressed) except -1
    cdef int _give_up_excess(self) except -1
    cdef int sum_early(self) except -1      # for PartitionQueue
    cdef int sum_records(self) except -1
    cdef uint32_t _checksum(self) except? 0
    cdef int _seal(self) except -1
    cdef int _check_usable(self) except -1


cpdef Py_ssize_t batch_size_upper_bound(
    object key, object value, object headers=*
) except -1


# For PartitionQueue: lend_tail moves the tail into the queue; take_tail_back moves it back. The
# caller holds the lock of the queue's tail. Release: a thread that gets the batch's own tail, which
# no lock guards, sees all that was moved into it.

@cython.nonecheck(False)
cdef inline void lend_tail(MemoryRecordsBuilder builder, TailMemory memory) noexcept:
    builder._lent = memory
    move_tail(builder._tail, memory.tail)
    kprod_put(builder._tail, memory.tail)


@cython.nonecheck(False)
cdef inline void take_tail_back(MemoryRecordsBuilder builder) noexcept nogil:
    move_tail(builder._tail, &builder._own)
    kprod_put(builder._tail, &builder._own)


# The path of each record, inlined into the modules that write records. nonecheck is off: these
# functions run without the GIL and cannot raise. The builder is never None.

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
    """True when the sender should send the batch. An open batch still accepts records."""
    return builder.closed_for_append or (
        builder._tail.record_count > 0
        and (builder._was_full or builder._full_size <= estimated_bytes_written(builder))
    )


# For readers of a batch that other threads may write to or close: between hold_tail and
# let_go_of_tail the tail does not change. No lock is taken with a GIL, or for a batch that is not
# open in a queue. A queue's tail may have been taken back between the first check and the lock, so
# it is checked again under the lock. TailMemory explains why the lock still exists then.

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
    """True for the one record that fills the batch. Also updates `_was_full` and `room`.

    ``nbytes`` is the size of the record that was just written.
    """
    return tail.end + nbytes > tail.room and becomes_full(
        <MemoryRecordsBuilder>tail.builder, nbytes
    )


@cython.nonecheck(False)
cdef inline bint becomes_full(MemoryRecordsBuilder builder, Py_ssize_t nbytes) noexcept nogil:
    """The rare part of has_filled.

    A batch that could grow by chunks counts as full when one more record of this size would exceed
    its full size.
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
    """Whether the batch grows by chunks: it is uncompressed, and may exceed its full size."""
    return (
        builder._full_size < builder._write_limit
        and builder.compression == NO_COMPRESSION
        and builder._pool is not None
    )


@cython.nonecheck(False)
cdef inline bint has_room_for(
    MemoryRecordsBuilder builder, int64_t offset, Py_ssize_t size
) noexcept nogil:
    """Whether a record of ``size`` bytes is within the limits; memory is not checked.

    The write limit holds from the second record on: an empty batch accepts a record of any size.
    """
    if builder.closed_for_append or offset > INT32_MAX:
        return False
    return (
        builder._tail.record_count == 0
        or estimated_bytes_written(builder) + size <= builder._write_limit
    )


@cython.nonecheck(False)
cdef inline bint grow_for(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Enlarge the buffer of a batch to be compressed: the codec needs contiguous records.

    Also for the first record of any batch, which may have any size.
    """
    cdef Py_ssize_t end = builder._tail.end + size
    cdef Py_ssize_t whole
    if builder._pool is None or builder.compression == NO_COMPRESSION:
        return builder._tail.record_count == 0 and builder._buffer.pool.try_grow(
            builder._buffer, end, 0
        )
    # First the expected size of a full batch, if half of the pool stays free; else half as much
    # again; else this record only. Growing in large steps limits the number of reallocs.
    whole = HEADER_SIZE + <Py_ssize_t>min(<double>builder._full_size / builder._expansion, 1e9)
    return (
        (whole > end and builder._pool.try_grow(builder._buffer, whole, builder._pool.total // 2))
        or builder._pool.try_grow(builder._buffer, end + end // 2, 0)
        or builder._pool.try_grow(builder._buffer, end, 0)
    )


@cython.nonecheck(False)
cdef inline void leave_chunk(MemoryRecordsBuilder builder) noexcept nogil:
    """Store the used bytes of the present memory, when no more records go there."""
    if builder._buffer.chunks == NULL:
        builder._first_used = builder._tail.end
    else:
        builder._buffer.last_chunk.used = builder._tail.end - builder._chunk_start


@cython.nonecheck(False)
cdef inline bint go_on_in_chunk(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Begin a chunk for a record of ``size`` bytes. False when the pool has no memory now."""
    cdef Chunk* chunk
    cdef Py_ssize_t end = builder._tail.end
    leave_chunk(builder)
    chunk = add_chunk(builder._pool, builder._buffer, size)
    if chunk == NULL:
        return False
    builder._chunk_start = end
    builder._memory_end = end + chunk.size - <Py_ssize_t>sizeof(Chunk)
    # `data` plus an offset in the batch is the address of a record in this chunk.
    builder._tail.data = chunk_data(chunk) - end
    set_room(builder)
    return True


@cython.nonecheck(False)
cdef inline bint has_memory(MemoryRecordsBuilder builder, Py_ssize_t size) noexcept nogil:
    """Whether ``size`` more contiguous bytes fit. The batch may take memory from the pool."""
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
    """The rare part of take_record_at. Returns 1, NO_ROOM or REFUSED."""
    if builder.closed_for_append:
        return NO_ROOM
    if builder._buffer.given_back:
        return REFUSED
    if not has_room_for(builder, offset, size) or not has_memory(builder, size):
        builder.closed_for_append = True
        builder._tail.room = 0
        return NO_ROOM
    if builder._tail.end >= builder._full_size:     # a record has passed the full size
        set_room(builder)
    return 1


@cython.nonecheck(False)
cdef inline void set_room(MemoryRecordsBuilder builder) noexcept nogil:
    """Set tail.room so that most appends need one comparison only."""
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
    """Write a record that fits.

    Returns False when the written size differs from the measured size (a kprod bug).
    """
    cdef int64_t delta = 0
    cdef char* start = tail.data + tail.end
    cdef char* end
    if tail.record_count == 0:
        tail.base_timestamp = record.timestamp_ms
    else:
        delta = record.timestamp_ms - tail.base_timestamp
    end = put_record(start, record, body, delta, offset)
    tail.max_timestamp = max(tail.max_timestamp, record.timestamp_ms)
    # No overflow: a batch has less than 2 GiB.
    tail.max_record_size = max(tail.max_record_size, <int32_t>size)
    tail.record_count += 1
    tail.end += <int32_t>size
    tail.last_offset = <int32_t>offset
    return end - start == size


cdef inline Py_ssize_t take_record_at(
    BatchTail* tail, const Record* record
) noexcept nogil:
    """Write a record. Returns its bytes, NO_ROOM or REFUSED. The caller holds the lock, if any."""
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
        verdict = make_room(<MemoryRecordsBuilder>tail.builder, offset, size)
        if verdict <= 0:
            return verdict
    return size if put_next(tail, offset, record, body, size) else REFUSED


@cython.nonecheck(False)
cdef inline Py_ssize_t take_record(
    MemoryRecordsBuilder builder, const Record* record
) noexcept nogil:
    """As take_record_at, also for a batch that may have lost its buffer."""
    if builder._buffer.given_back and not builder.closed_for_append:
        return REFUSED
    return take_record_at(builder._tail, record)


cdef class ProducerBatch(MemoryRecordsBuilder):
    cdef public object tp
    cdef public object delivery         # outcome of its records: see kprod.buffer.delivery
    cdef readonly double created_at
    cdef public Py_ssize_t attempts
    cdef public double last_attempt_at
    cdef public double retry_at
    cdef readonly object last_error
    cdef public object attempted_leader
    cdef public object producer
    cdef public int32_t base_sequence
    cdef public object partition        # of the sender, from when it takes the batch
    cdef public tuple drain_order
    cdef public bint in_flight            # in flight, or queued again: without an outcome
    cdef public bint maybe_written
    cdef public bint on_wire
    cdef public bint overtaken
    cdef public SharedFlag taken_by_sender    # no caller compresses it
    cdef ProducerBatch following        # next in its queue; guarded by the queue's lock
