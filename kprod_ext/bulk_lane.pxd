cimport cython
from libc.stdint cimport int64_t

from kprod_ext.record_chunk cimport RecordChunk
from kprod_ext.record_layout cimport Record
from kprod_ext.sent_records cimport SentRecords


cdef struct Lane:
    void* open              # OpenBatch, kept alive by BulkLane._opens; NULL: not known yet
    void* builder           # its builder; valid while held
    void* delivery          # of the batch the run is in, kept alive by BulkLane._deliveries
    Py_ssize_t first        # index in the batch of the run's first record
    Py_ssize_t count        # records in the run
    bint held               # the lock of `open` is ours


cdef struct Share:          # what a sticky partition may get, and got
    Py_ssize_t partition
    Py_ssize_t room             # bytes until it has had its share in any case
    Py_ssize_t room_if_full     # and once its batch is full
    Py_ssize_t bytes
    bint full


cdef struct Spare:
    void* builder           # kept alive by the list that write() was given
    Py_ssize_t partition    # that it was begun for
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
cdef class BulkLane:
    cdef readonly Py_ssize_t partition_count
    cdef readonly Py_ssize_t partition      # that write() stopped at
    cdef readonly list filled               # partitions whose batches it left full
    cdef BulkTurn _turn
    cdef SentRecords _sent
    cdef list _opens                        # OpenBatch by partition
    cdef list _deliveries                   # by partition, of the runs
    cdef Lane* _lanes                       # by partition
    cdef Py_ssize_t* _held                  # partitions whose lock is ours
    cdef Py_ssize_t _held_count
    cdef EndedRun* _ended                   # runs that ended while no Python object may be touched
    cdef Py_ssize_t _ended_count
    cdef Py_ssize_t* _full                  # partitions whose batches were full, likewise
    cdef Py_ssize_t _full_count
    cdef readonly Py_ssize_t share          # in use, of those write() was given; behind all: none
    cdef readonly Py_ssize_t per_batch      # records in the last batch that was full; 0: none was
    cdef Share[MOST_SHARES] _shares
    cdef Py_ssize_t _share_count
    cdef Spare[MOST_SPARES] _spares
    cdef Py_ssize_t _spare_count
    cdef Py_ssize_t _begun                  # spares that records were written to

    cdef int _stint(self, RecordChunk chunk) noexcept nogil
    cdef int _write_rows(self, RecordChunk chunk, int64_t now) noexcept nogil
    cdef Py_ssize_t _take_values(self, RecordChunk chunk, int64_t now) noexcept nogil
    cdef Py_ssize_t _choose(self, const char* key, Py_ssize_t size) noexcept nogil
    cdef bint _seize(self, Py_ssize_t partition) noexcept nogil
    cdef bint _begin_spare(self, Py_ssize_t partition, const Record* record) noexcept nogil
    cdef void _count_sticky(self, Py_ssize_t nbytes, bint full) noexcept nogil
    cdef void _let_go(self) noexcept nogil
    cdef int _prepare_shares(self, list stickies) except -1
    cdef int _count_shares(self, list stickies) except -1
    cdef int _prepare_spares(self, list spares) except -1
    cdef int _reserve_runs(self, RecordChunk chunk) except -1
    cdef int _publish(self, list spares, object publish) except -1
    cdef int _follow(self, Py_ssize_t partition) except -1
    cdef int _begin_run(self, Py_ssize_t partition, object delivery, Py_ssize_t first) except -1
    cdef int _note_ended(self) except -1
    cdef int _note_full(self) except -1
