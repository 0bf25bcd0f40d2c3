cimport cython
from libc.stdint cimport int64_t

from kprod_ext.record_chunk cimport RecordChunk
from kprod_ext.sent_records cimport SentRecords
from kprod_ext.sticky_partition cimport StickyPartition


cdef struct Lane:
    void* open              # OpenBatch, kept alive by BulkLane._opens; NULL: not known yet
    void* builder           # its builder; valid while held
    void* delivery          # of the batch the run is in, kept alive by BulkLane._deliveries
    Py_ssize_t first        # index in the batch of the run's first record
    Py_ssize_t count        # records in the run
    bint held               # the lock of `open` is ours


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
    cdef Py_ssize_t _sticky_partition       # -1: none
    cdef Py_ssize_t _sticky_room            # bytes until it has had its share in any case
    cdef Py_ssize_t _sticky_room_if_full    # and once its batch is full
    cdef Py_ssize_t _sticky_bytes           # it got now
    cdef bint _sticky_full

    cdef int _stint(self, RecordChunk chunk) noexcept nogil
    cdef int _write_rows(self, RecordChunk chunk, int64_t now) noexcept nogil
    cdef Py_ssize_t _choose(self, const char* key, Py_ssize_t size) noexcept nogil
    cdef int _seize(self, Py_ssize_t partition) noexcept nogil
    cdef bint _count_sticky(self, Py_ssize_t nbytes, bint full) noexcept nogil
    cdef void _let_go(self) noexcept nogil
    cdef int _prepare_sticky(self, StickyPartition sticky) except -1
    cdef int _follow(self, Py_ssize_t partition) except -1
    cdef int _begin_run(self, Py_ssize_t partition, object delivery, Py_ssize_t first) except -1
    cdef int _note_ended(self) except -1
    cdef int _note_full(self) except -1
