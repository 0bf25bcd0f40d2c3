"""The fields of a partition's queue and of a sticky partition, and the append of one record."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kprod_ext.batch cimport (
    BatchTail,
    MemoryRecordsBuilder,
    ProducerBatch,
    REFUSED,
    TailMemory,
    has_filled,
    take_record_at,
)
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.futures cimport FutureRecordMetadata, give_delivery, new_future
from kprod_ext.record cimport (
    CACHE_LINE,
    NO_TIME,
    Record,
    RecordClock,
    kprod_prefetch_to_write,
    now_with_gil,
)
from kprod_ext.shared cimport (
    AtomicFlag,
    RecordLock,
    SharedCount,
    SharedFlag,
    release_lock,
    take_lock,
)

cdef inline Py_ssize_t share_of(Py_ssize_t batch_size, bint batch_ready) noexcept nogil:
    """Bytes of a sticky partition's share: one batch if a batch is full, else two (KIP-794)."""
    return batch_size if batch_ready else 2 * batch_size


@cython.final
@cython.no_gc           # refers to another one at most, never to itself
cdef class StickyPartition:
    cdef readonly Py_ssize_t partition
    cdef readonly StickyPartition following
    cdef readonly AtomicFlag spent
    cdef Py_ssize_t _produced
    cdef readonly Py_ssize_t batch_size
    cdef RecordLock _lock               # guards counting

    cpdef StickyPartition current(self)
    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept nogil
    cdef Py_ssize_t left(self, bint batch_ready) noexcept nogil


cdef class AppendContext:
    cdef readonly BufferPool pool
    cdef readonly Py_ssize_t batch_size
    cdef readonly Py_ssize_t batch_max_size
    cdef readonly RecordClock clock
    cdef object _now                    # the monotonic clock, in seconds
    cdef object _batch_type
    cdef object _delivery_type
    cdef readonly object callbacks
    cdef object _ratios
    cdef set _incomplete
    cdef object _on_change
    cdef object _wake
    cdef object _wake_within
    cdef object _wait
    cdef object _compression
    cdef public object refusal          # returns why no record may be queued; or None
    cdef public SharedFlag closed
    cdef public SharedCount closings        # how often all open batches were closed

    cdef int wake(self) except -1
    cdef bint refuses(self) except -1


@cython.no_gc           # only the caller that asked for the append refers to it
cdef class AppendResult:
    cdef readonly FutureRecordMetadata future
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint batch_ready
    cdef readonly bint wake_sender
    cdef readonly object linger


# The lock of `tail` guards the tail, the open batch, `_open`, `_oldest`, `_youngest`, `_depth`,
# `_opened` and `retired`. Readers that take no lock:
#
# - With a GIL `_open`, `_oldest` and the size of a queued batch are read without the lock.
# - `_depth`, `_opened` and `retired` are read without the lock, also without a GIL. `_push` checks
#   the last two again under the lock before it queues a batch.
# - `batch_max_size` and `grows_to` are set by the sender, and read by appenders that open a batch.
#
# `_drained` belongs to the sender's thread.

@cython.no_gc_clear     # the tail's pointers are valid until the queue is freed
cdef class PartitionQueue:
    cdef BatchTail* tail                    # within _memory
    cdef TailMemory _memory
    cdef ProducerBatch _open                # accepts records; None: no batch does
    cdef ProducerBatch _oldest
    cdef ProducerBatch _youngest
    cdef SharedCount _depth
    cdef Py_ssize_t _drained
    cdef SharedCount _opened                # counts opened batches, and `close_open_batch`
    cdef public SharedFlag retired
    # Set once.
    cdef readonly AppendContext context
    cdef readonly object tp
    cdef readonly object settings
    cdef readonly double linger
    cdef readonly int acks
    cdef readonly object expedite
    cdef readonly object wait
    cdef public SharedCount batch_max_size  # limits of new batches, in bytes
    cdef public SharedCount grows_to
    cdef public object partition            # the sender's state; for the sender only

    cpdef AppendResult append(
        self, object timestamp_ms, object key, object value, object headers, object buffer=*
    )
    cpdef AppendResult append_to_open(
        self, object timestamp_ms, object key, object value, object headers
    )
    cdef AppendResult _append_to_open(self, Record* record)
    cdef ProducerBatch _open_batch(self)
    cdef AppendResult append_or_open_batch(
        self, Record* record, PooledBuffer buffer, bint quietly
    )
    cpdef void batch_filled(self) except *

    cdef ProducerBatch _new_batch(self, PooledBuffer buffer)
    cdef int _push(
        self,
        ProducerBatch batch,
        Record* record,
        AppendResult result,
        Py_ssize_t opened,
        Py_ssize_t closings,
        bint quietly,
    ) except -1
    cdef void _link(self, ProducerBatch batch) noexcept
    cdef int _admit(self, ProducerBatch batch, bint quietly) except -1
    cdef int _notify_sender(self, AppendResult result, ProducerBatch filled, bint quietly) except -1
    cdef void _exchange(self, ProducerBatch batch) noexcept
    cdef void _end(self, ProducerBatch batch) noexcept
    cdef ProducerBatch _first(self)
    cdef bint _unlink(self, ProducerBatch batch) noexcept


cdef inline void fetch_early(BatchTail* tail) noexcept nogil:
    """Prefetch the lines that an append writes besides the tail."""
    cdef char* place = tail.data + tail.end
    kprod_prefetch_to_write(place)
    kprod_prefetch_to_write(place + CACHE_LINE)
    kprod_prefetch_to_write(<char*>tail.delivery)


cdef inline void fetch_ahead(BatchTail* tail, Py_ssize_t size) noexcept nogil:
    """Prefetch the lines of the next record, assuming that it is as large as the last one."""
    cdef char* place = tail.data + tail.end + CACHE_LINE
    cdef char* end = place + min(size, 4 * CACHE_LINE)
    while place < end:
        kprod_prefetch_to_write(place)
        place += CACHE_LINE


cdef inline void describe_record(
    FutureRecordMetadata future, int32_t index, const Record* record
) noexcept:
    """Set index, timestamp and sizes of the record's future."""
    cdef Py_ssize_t header_size = -1 if record.header_count == 0 else 0
    cdef Py_ssize_t i
    for i in range(2 * record.header_count):
        header_size += max(record.headers[i].size, 0)
    # 32 bits are enough: no batch holds a larger record.
    future.index = index
    future.timestamp = record.timestamp_ms
    future.key_size = <int32_t>record.key.size
    future.value_size = <int32_t>record.value.size
    future.header_size = <int32_t>header_size


cdef inline FutureRecordMetadata append_record(
    BatchTail* tail,
    RecordClock clock,
    Record* record,
    Py_ssize_t* nbytes,
    bint* full,
    char** next_place,
):
    """Append a record to the open batch. Returns its future, or None when the batch has no room.

    ``tail`` belongs to a PartitionQueue, ``clock`` to its context. A record with the time NO_TIME
    gets the clock's. The parameters after ``record`` are outputs, set when the record was appended.
    """
    cdef MemoryRecordsBuilder builder
    cdef int32_t index
    # Allocate the future first: after the record is written, no step may fail.
    cdef FutureRecordMetadata future = new_future()
    take_lock(&tail.lock)
    if tail.builder == NULL:
        release_lock(&tail.lock)
        return None
    fetch_early(tail)
    if record.timestamp_ms == NO_TIME:
        # Under the lock: of two threads the one that appends first has the earlier time.
        record.timestamp_ms = now_with_gil(clock)
    index = tail.record_count
    nbytes[0] = take_record_at(tail, record)
    if nbytes[0] > 0:
        full[0] = has_filled(tail, nbytes[0])
        fetch_ahead(tail, nbytes[0])
        next_place[0] = tail.data + tail.end
        give_delivery(future, tail.delivery)
    elif nbytes[0] == REFUSED:
        builder = <MemoryRecordsBuilder>tail.builder
    release_lock(&tail.lock)
    if nbytes[0] <= 0:
        if nbytes[0] == REFUSED:
            builder.refuse(record)
        return None
    describe_record(future, index, record)
    return future
