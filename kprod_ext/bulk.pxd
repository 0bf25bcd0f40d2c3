"""Values without anything else, one after the other into a batch.

Such records have no key, no headers and one timestamp. So what ``take_record`` looks at for each
record is looked at once for all of them, and a record is written as ``record_layout`` has it.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint16_t, uint32_t, uint8_t
from libc.string cimport memset

from kprod_ext.batch cimport BatchTail, MemoryRecordsBuilder, uncompressed_size
from kprod_ext.partition_queue cimport share_of
from kprod_ext.record cimport (
    CACHE_LINE,
    Field,
    HEADER_SIZE,
    RECORD_OVERHEAD,
    Record,
    body_size,
    kprod_prefetch,
    payload_size,
    put_record,
)
from kprod_ext.rows cimport RecordChunk
from kprod_ext.send cimport TopicAppender


@cython.final
@cython.no_gc           # in no cycle that outlives its batch: deliveries let go of waiters
cdef class RecordRun:
    cdef readonly Py_ssize_t place
    cdef readonly Py_ssize_t ordinal    # of the first record, among those of its place
    cdef readonly object delivery
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t count


cdef struct WaitingRun:     # that is noted, but not filed yet
    Py_ssize_t place
    PyObject* delivery      # referred to until it is filed
    Py_ssize_t first
    Py_ssize_t count
    bint listed             # it is the last of all runs already, and not yet among its place's


@cython.final
cdef class SentRecords:
    cdef readonly Py_ssize_t count
    cdef list _runs
    cdef WaitingRun* _waiting
    cdef Py_ssize_t _waiting_count
    cdef Py_ssize_t _waiting_room
    cdef Py_ssize_t _filed              # of those that waited
    cdef Py_ssize_t _room
    cdef int _width                     # bytes of a place's number: 1, 2 or 4
    cdef void* _places                  # by record
    cdef uint32_t* _ordinals            # by record, once somebody asked; NULL before
    cdef dict _runs_by_place
    cdef cython.pymutex _lock           # guards making _ordinals

    cdef int reserve(self, Py_ssize_t more, Py_ssize_t places) except -1
    cdef int reserve_runs(self, Py_ssize_t more) except -1
    cdef int add_run(
        self, Py_ssize_t place, object delivery, Py_ssize_t first, Py_ssize_t count
    ) except -1
    cdef int file_runs(self) except -1
    cdef int finish_runs(self) except -1
    cdef int _file(self, WaitingRun* waiting) except -1
    cdef int _widen(self, int width) except -1
    cdef int _number_ordinals(self) except -1


cdef inline void put_place(SentRecords sent, Py_ssize_t place) noexcept nogil:
    """One more record; reserve() has made room for it and its place."""
    if sent._width == 1:
        (<uint8_t*>sent._places)[sent.count] = <uint8_t>place
    elif sent._width == 2:
        (<uint16_t*>sent._places)[sent.count] = <uint16_t>place
    else:
        (<uint32_t*>sent._places)[sent.count] = <uint32_t>place
    sent.count += 1


cdef inline void put_places(SentRecords sent, Py_ssize_t place, Py_ssize_t count) noexcept nogil:
    """The same for ``count`` records that went to one place."""
    if sent._width == 1:
        memset(<uint8_t*>sent._places + sent.count, <int>place, <size_t>count)
        sent.count += count
        return
    while count > 0:
        put_place(sent, place)
        count -= 1


cdef inline Py_ssize_t place_of(SentRecords sent, Py_ssize_t record) noexcept nogil:
    if sent._width == 1:
        return (<uint8_t*>sent._places)[record]
    if sent._width == 2:
        return (<uint16_t*>sent._places)[record]
    return (<uint32_t*>sent._places)[record]


# Values without anything else, one after the other into a batch.
#
# Such records have no key, no headers and one timestamp. So what ``take_record`` looks at for each
# record is looked at once for all of them, and a record is written as ``record_layout`` has it.

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


cdef struct Run:            # records of the call that follow each other in a partition's batch
    BatchTail* tail         # of its PartitionQueue, which the topic keeps; NULL: not known
    void* builder           # of the batch that takes the next record; valid while locked
    void* delivery          # of the batch the run is in, kept alive by BulkAppender._deliveries
    Py_ssize_t first        # index in the batch of the run's first record
    Py_ssize_t count        # records in the run
    bint locked             # the lock of `tail` is held by this call


cdef struct StickyShare:          # what a sticky partition got
    Py_ssize_t partition
    Py_ssize_t batch_size
    Py_ssize_t before           # bytes before this call of write()
    Py_ssize_t bytes            # in this call
    bint full                   # its batch


cdef struct SpareRun:       # a spare batch, and what came before it in its partition
    void* builder           # kept alive by the list that write() was given
    Py_ssize_t partition    # of its records
    Py_ssize_t first        # the run that was under way there before, in another batch
    Py_ssize_t count


cdef enum:
    MOST_SHARES = 65        # looked at in one call of write()
    MOST_SPARES = 64


cdef struct EndedRun:
    Py_ssize_t partition
    Py_ssize_t first
    Py_ssize_t count


@cython.final
@cython.no_gc           # refers to nothing
cdef class BulkTurn:
    cdef cython.pymutex lock        # guards nothing; orders the taking of several open batches


@cython.final
cdef class BulkAppender:
    cdef readonly Py_ssize_t partition_count
    cdef readonly Py_ssize_t partition      # that write() stopped at
    cdef readonly list filled               # partitions whose batches it left full
    cdef readonly Py_ssize_t share          # in use, of those write() was given; behind all: none
    cdef readonly Py_ssize_t record_bytes   # of one record, as far as is known; 0: nothing is
    cdef BulkTurn _turn
    cdef SentRecords _sent
    cdef TopicAppender _topic                   # where the partitions' open batches are found
    cdef int64_t _now                       # what records without a time get
    cdef list _deliveries                   # by partition, of the runs
    cdef Run* _runs                         # by partition
    cdef Py_ssize_t* _locked                # partitions whose lock this call holds
    cdef Py_ssize_t _locked_count
    cdef EndedRun* _ended                   # runs that ended while no Python object may be touched
    cdef Py_ssize_t _ended_count
    cdef Py_ssize_t* _full                  # partitions whose batches were full, likewise
    cdef Py_ssize_t _full_count
    cdef StickyShare[MOST_SHARES] _shares
    cdef Py_ssize_t _share_count
    cdef SpareRun[MOST_SPARES] _spares
    cdef Py_ssize_t _spare_count
    cdef Py_ssize_t _begun                  # spares that records were written to

    cdef int _write_locked(self, RecordChunk chunk) noexcept nogil
    cdef int _write_rows(self, RecordChunk chunk) noexcept nogil
    cdef Py_ssize_t _take_values(self, RecordChunk chunk) noexcept nogil
    cdef Py_ssize_t _partition_for(self, const Field* key) noexcept nogil
    cdef BatchTail* _tail_of(self, Py_ssize_t partition) noexcept nogil
    cdef bint _lock(self, Py_ssize_t partition) noexcept nogil
    cdef bint _begin_spare(self, Py_ssize_t partition, const Record* record) noexcept nogil
    cdef void _count_sticky(self, Py_ssize_t nbytes, bint full) noexcept nogil
    cdef void _unlock_all(self) noexcept nogil
    cdef int _prepare_shares(self, list stickies) except -1
    cdef int _count_shares(self, list stickies) except -1
    cdef int _prepare_spares(self, list spares) except -1
    cdef int _reserve_runs(self, RecordChunk chunk) except -1
    cdef int _publish(self, list spares, object publish) except -1
    cdef int _follow(self, Py_ssize_t partition) except -1
    cdef int _begin_run(self, Py_ssize_t partition, object delivery, Py_ssize_t first) except -1
    cdef int _note_ended(self) except -1
    cdef int _note_full(self) except -1

cdef inline Py_ssize_t bytes_left(const StickyShare* share, bint full) noexcept nogil:
    """Bytes until a sticky partition has had its share, as far as this call knows."""
    return share_of(share.batch_size, full) - share.before - share.bytes


cdef inline Py_ssize_t bytes_per_record(MemoryRecordsBuilder builder) noexcept nogil:
    return 1 + uncompressed_size(builder) // max(builder._tail.record_count, 1)
