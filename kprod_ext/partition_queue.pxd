"""What a partition's queue and a sticky partition hold, and the append of one record."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kprod_ext.batch cimport (
    ASK_LOCKED,
    BatchTail,
    MemoryRecordsBuilder,
    NO_ROOM,
    ProducerBatch,
    REFUSED,
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
    KPROD_HAS_GIL,
    RecordLock,
    SharedCount,
    SharedFlag,
    release_lock,
    take_lock,
)

cdef inline Py_ssize_t share_of(Py_ssize_t batch_size, bint batch_ready) noexcept nogil:
    """Bytes that a sticky partition gets: a batch if that is full then, else two (KIP-794)."""
    return batch_size if batch_ready else 2 * batch_size


@cython.final
@cython.no_gc           # refers to nothing
cdef class StickyPartition:
    cdef readonly Py_ssize_t partition
    cdef readonly SharedFlag spent
    cdef Py_ssize_t _produced
    cdef readonly Py_ssize_t batch_size
    cdef RecordLock _lock               # guards counting

    cdef bint count(self, Py_ssize_t nbytes, bint batch_ready) noexcept nogil
    cdef Py_ssize_t left(self, bint batch_ready) noexcept nogil


# Threads that may write into open batches without the GIL; changed with the GIL held. After a fork
# meanwhile it is too large, which costs time only. While it is 0, the thread that has the GIL is
# alone and takes no lock. That counts: taking one waits until all that was written before has
# reached a cache, and where the record before this one went is in none.
cdef Py_ssize_t writers_without_gil


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
    cdef object _noted
    cdef object _wake
    cdef object _look_within
    cdef object _hurry
    cdef object _wait
    cdef object _compression
    cdef public object refusal          # why no record may be queued now; None: nothing can refuse
    cdef public SharedFlag closed
    cdef public SharedCount shuts       # how often `shut` was begun

    cdef bint refuses(self) except -1


@cython.no_gc           # only the caller that asked for the append refers to it
cdef class AppendResult:
    cdef readonly FutureRecordMetadata future
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint batch_ready
    cdef readonly bint wake_sender
    cdef readonly object linger


@cython.no_gc_clear     # what the tail refers to is kept as long as there is a tail
cdef class PartitionQueue:
    cdef BatchTail* tail                    # within _room, in one line; its lock guards all below
    cdef ProducerBatch _open                # takes records; None: no batch does
    cdef ProducerBatch _oldest
    cdef ProducerBatch _youngest
    cdef Py_ssize_t _depth
    cdef Py_ssize_t _drained
    cdef SharedCount _opened                # how often a batch was opened here
    cdef public SharedFlag retired
    # Set once.
    cdef readonly AppendContext context
    cdef readonly object tp
    cdef readonly object settings
    cdef readonly double linger
    cdef readonly int acks
    cdef readonly object hurry
    cdef readonly object wait
    # For the sender's thread: the batches it allows, what ReadyTracker saw, and where it put this.
    cdef public Py_ssize_t batch_max_size
    cdef public Py_ssize_t grows_to
    cdef public object leader
    cdef public object queues_of_node
    cdef public int64_t found_in
    cdef public int64_t look
    cdef public object queue_list
    cdef public object before
    cdef public object after
    cdef BatchTail[2] _room                 # enough for one, wherever a line begins

    cpdef AppendResult append(
        self, object timestamp_ms, object key, object value, object headers, object buffer=*
    )
    cpdef AppendResult append_to_open(
        self, object timestamp_ms, object key, object value, object headers
    )
    cdef AppendResult _append_to_open(self, Record* record)
    cdef ProducerBatch _open_batch(self)
    cdef AppendResult append_to_new_batch(self, Record* record, PooledBuffer buffer)
    cpdef void batch_filled(self) except *

    cdef ProducerBatch _new_batch(self, PooledBuffer buffer)
    cdef int _push(
        self,
        ProducerBatch batch,
        Record* record,
        AppendResult result,
        Py_ssize_t opened,
        Py_ssize_t shuts,
    ) except -1
    cdef void _link(self, ProducerBatch batch) noexcept
    cdef int _admit(self, ProducerBatch batch) except -1
    cdef int _tell(self, AppendResult result, ProducerBatch filled) except -1
    cdef void _exchange(self, ProducerBatch batch) noexcept
    cdef void _end(self, ProducerBatch batch) noexcept
    cdef ProducerBatch _first(self)
    cdef bint _unlink(self, ProducerBatch batch) noexcept


cdef inline void fetch_early(BatchTail* tail) noexcept nogil:
    """Ask at once for all that an append touches besides the tail."""
    cdef char* place = tail.data + tail.end
    kprod_prefetch_to_write(place)
    kprod_prefetch_to_write(place + CACHE_LINE)
    kprod_prefetch_to_write(<char*>tail.delivery)


cdef inline void fetch_ahead(BatchTail* tail, Py_ssize_t size) noexcept nogil:
    """Ask for where the next record goes, which will be as large as the last one, say."""
    cdef char* place = tail.data + tail.end + CACHE_LINE
    cdef char* end = place + min(size, 4 * CACHE_LINE)
    while place < end:
        kprod_prefetch_to_write(place)
        place += CACHE_LINE


cdef inline void describe_record(
    FutureRecordMetadata future, int32_t index, const Record* record
) noexcept:
    """Tell ``future`` of the record that it is for."""
    cdef Py_ssize_t header_size = -1 if record.header_count == 0 else 0
    cdef Py_ssize_t i
    for i in range(2 * record.header_count):
        header_size += max(record.headers[i].size, 0)
    # 32 bits are enough: a record that takes more bytes is in no batch.
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
    """A record from memory: its future, or None when it was not taken.

    ``tail`` is that of a PartitionQueue; the clock is its context's.
    A record whose time is NO_TIME gets the clock's. What follows ``record`` are outputs, set when
    it was taken.
    """
    cdef MemoryRecordsBuilder builder
    cdef int32_t index
    cdef bint stamps = record.timestamp_ms == NO_TIME
    # First: once the record is in its batch nothing may fail: the sending caller would be told so.
    cdef FutureRecordMetadata future = new_future()
    # A batch without room may have to ask the pool, and waiting for that lets go of the GIL.
    cdef bint shared = not KPROD_HAS_GIL or writers_without_gil > 0 or tail.room == 0
    if shared:
        take_lock(&tail.lock)
    if tail.builder == NULL:
        if shared:
            release_lock(&tail.lock)
        return None
    fetch_early(tail)
    if stamps:
        # Under the lock: of two threads the one that appends first has the earlier time.
        record.timestamp_ms = now_with_gil(clock)
    index = tail.record_count
    nbytes[0] = take_record_at(tail, record, shared)
    if nbytes[0] == ASK_LOCKED:
        # While this waited for the lock, others may have appended, or ended the batch.
        take_lock(&tail.lock)
        shared = True
        if stamps and index != tail.record_count:
            record.timestamp_ms = now_with_gil(clock)
        index = tail.record_count
        nbytes[0] = take_record_at(tail, record, True) if tail.builder != NULL else NO_ROOM
    if nbytes[0] > 0:
        full[0] = has_filled(tail, nbytes[0])
        fetch_ahead(tail, nbytes[0])
        next_place[0] = tail.data + tail.end
        give_delivery(future, tail.delivery)
    elif nbytes[0] == REFUSED:
        builder = <MemoryRecordsBuilder>tail.builder
    if shared:
        release_lock(&tail.lock)
    if nbytes[0] <= 0:
        if nbytes[0] == REFUSED:
            builder.refuse(record)
        return None
    describe_record(future, index, record)
    return future
