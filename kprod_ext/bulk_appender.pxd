cimport cython
from libc.stdint cimport int64_t

from kprod_ext.batch_tail cimport BatchTail
from kprod_ext.compiled_send cimport TopicAppender
from kprod_ext.record_chunk cimport RecordChunk
from kprod_ext.record_layout cimport Field, Record
from kprod_ext.records_builder cimport MemoryRecordsBuilder, uncompressed_size
from kprod_ext.sent_records cimport SentRecords
from kprod_ext.sticky_partition cimport share_of


cdef struct Run:            # records of the call that follow each other in a partition's batch
    BatchTail* tail         # of its PartitionAppender, which the topic keeps; NULL: not known
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
