# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Many records in one go: a loop over ``send``'s compiled lane, without Python in it.

Records are written one after the other, in the order in which they were given, each into the open
batch of its partition. So whatever stops the loop, all records before the one at hand are queued
and none after it; batches are cut exactly where a loop of sends would cut them. The locks of the
batches are taken when first needed and kept until the loop stops.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t

from kprod_ext.murmur2 cimport murmur2_hash
from kprod_ext.open_batch cimport OpenBatch
from kprod_ext.prefetch cimport kprod_prefetch
from kprod_ext.record_chunk cimport UNSET, RecordChunk, read_row
from kprod_ext.record_layout cimport Record
from kprod_ext.record_lock cimport release_lock, take_lock
from kprod_ext.records_builder cimport MemoryRecordsBuilder, is_full, take_record
from kprod_ext.sent_records cimport SentRecords, put_place
from kprod_ext.sticky_partition cimport StickyPartition
from kprod_ext.wall_clock cimport kprod_wall_ms

cdef enum:
    DONE = 0                # every record was written
    NO_ROOM = 1             # the next one needs a new batch of `partition`
    UNKNOWN = 2             # the open batch of `partition` must be admitted first
    STICKY = 3              # the next one needs a sticky partition to go to
    REFUSED = 4             # the next one is not one a batch can hold
    MOVED_ON = 5            # the open batch of `partition` is another one now
    POSITIVE = 0x7FFFFFFF
    AHEAD = 8

cdef tuple STOPS = ("done", "no room", "unknown", "sticky")     # as write() tells them


@cython.final
@cython.no_gc
cdef class BulkTurn:
    """Whose turn it is to hold several open batches at once: no two threads wait for each other."""


@cython.final
cdef class BulkLane:
    """Writes chunks of records into the open batches of one topic."""

    def __cinit__(
        self, Py_ssize_t partition_count, BulkTurn turn not None, SentRecords sent not None
    ):
        if partition_count < 1:
            raise ValueError(f"a topic has 1 partition or more, not {partition_count}")
        self._lanes = <Lane*>PyMem_Calloc(<size_t>partition_count, sizeof(Lane))
        self._held = <Py_ssize_t*>PyMem_Malloc(<size_t>partition_count * sizeof(Py_ssize_t))
        self._ended = <EndedRun*>PyMem_Malloc(<size_t>partition_count * sizeof(EndedRun))
        self._full = <Py_ssize_t*>PyMem_Malloc(<size_t>partition_count * sizeof(Py_ssize_t))
        if not (self._lanes and self._held and self._ended and self._full):
            raise MemoryError(f"no memory for {partition_count} partitions")
        self.partition_count = partition_count
        self.filled = []
        self._opens = [None] * partition_count
        self._deliveries = [None] * partition_count
        self._turn = turn
        self._sent = sent

    def __dealloc__(self):
        PyMem_Free(self._lanes)
        PyMem_Free(self._held)
        PyMem_Free(self._ended)
        PyMem_Free(self._full)

    def admit(self, Py_ssize_t partition, OpenBatch batch not None):
        """Write records of this partition into that open batch."""
        if not 0 <= partition < self.partition_count:
            raise IndexError(f"there is no partition {partition}")
        if self._lanes[partition].open == NULL:
            self._opens[partition] = batch
            self._lanes[partition].open = <void*>batch

    def write(self, RecordChunk chunk not None, StickyPartition sticky):
        """Write the chunk's records from ``chunk.at`` on; why it stopped."""
        cdef int stop = MOVED_ON
        self.filled = []
        self._sent.reserve(chunk.count - chunk.at + chunk.to_follow(), self.partition_count)
        self._prepare_sticky(sticky)
        while stop == MOVED_ON:
            with nogil:
                stop = self._stint(chunk)
            self._note_ended()
            self._note_full()
            if stop == MOVED_ON:
                self._follow(self.partition)
        if self._sticky_bytes > 0:
            sticky.add(self._sticky_bytes, self._sticky_full)
        if stop == REFUSED:
            raise ValueError("a record that no batch can hold")
        return STOPS[stop]

    def appended(self, RecordChunk chunk not None, delivery, Py_ssize_t index):
        """The chunk's next record was appended elsewhere: it is number ``index`` of a batch."""
        if chunk.at >= chunk.count:
            raise IndexError("no record is left")
        self._sent.reserve(1, self.partition_count)
        self._begin_run(self.partition, delivery, index)
        put_place(self._sent, self.partition)
        self._lanes[self.partition].count = 1
        chunk.at += 1

    def finish(self):
        """Note the runs that are under way; to be called when no more is written, by whoever."""
        cdef Py_ssize_t partition
        self._note_ended()
        for partition in range(self.partition_count):
            if self._lanes[partition].count > 0:
                self._begin_run(partition, None, 0)

    cdef int _stint(self, RecordChunk chunk) noexcept nogil:
        """Write until something stops it. No Python object is made, referred to or let go."""
        cdef int stop
        self._turn.lock.acquire()
        stop = self._write_rows(chunk, kprod_wall_ms())
        self._let_go()
        self._turn.lock.release()
        return stop

    cdef int _write_rows(self, RecordChunk chunk, int64_t now) noexcept nogil:
        cdef Record record
        cdef Py_ssize_t partition, nbytes
        cdef Lane* lane
        cdef int stop
        while chunk.at < chunk.count or chunk.refill():
            if chunk.at + AHEAD < chunk.count:
                kprod_prefetch(chunk.values[chunk.at + AHEAD].data)
            read_row(chunk, chunk.at, &record)
            if record.timestamp_ms == UNSET:
                record.timestamp_ms = now
            partition = chunk.partitions[chunk.at] if chunk.placed else UNSET
            if partition == UNSET:
                partition = self._choose(record.key.data, record.key.size)
                if partition < 0:
                    return STICKY
            self.partition = partition
            if partition >= self.partition_count or self._lanes[partition].open == NULL:
                return UNKNOWN
            lane = &self._lanes[partition]
            if not lane.held:
                stop = self._seize(partition)
                if stop != DONE:
                    return stop
            nbytes = take_record(<MemoryRecordsBuilder>lane.builder, &record)
            if nbytes <= 0:
                return NO_ROOM if nbytes == 0 else REFUSED
            put_place(self._sent, partition)
            lane.count += 1
            chunk.at += 1
            if partition == self._sticky_partition and self._count_sticky(
                nbytes, is_full(<MemoryRecordsBuilder>lane.builder)
            ):
                self._sticky_partition = -1
        return DONE

    cdef Py_ssize_t _choose(self, const char* key, Py_ssize_t size) noexcept nogil:
        if size < 0:
            return self._sticky_partition
        return <Py_ssize_t>(
            murmur2_hash(<const unsigned char*>key, size) & <unsigned int>POSITIVE
        ) % self.partition_count

    cdef int _seize(self, Py_ssize_t partition) noexcept nogil:
        """Take the lock of a partition's open batch, and see that the run goes on in it."""
        cdef Lane* lane = &self._lanes[partition]
        take_lock(&(<OpenBatch>lane.open)._lock)
        lane.held = True
        self._held[self._held_count] = partition
        self._held_count += 1
        lane.builder = (<OpenBatch>lane.open).builder_address()
        if lane.builder == NULL:
            return NO_ROOM
        if lane.delivery != (<OpenBatch>lane.open).delivery_address():
            return MOVED_ON
        if (<MemoryRecordsBuilder>lane.builder).record_count != lane.first + lane.count:
            # Somebody else has appended since. At most one run of a partition ends so, as its lock
            # is then kept until the stint is over: _ended has room for it.
            if lane.count > 0:
                self._ended[self._ended_count].partition = partition
                self._ended[self._ended_count].first = lane.first
                self._ended[self._ended_count].count = lane.count
                self._ended_count += 1
            lane.first = (<MemoryRecordsBuilder>lane.builder).record_count
            lane.count = 0
        return DONE

    cdef bint _count_sticky(self, Py_ssize_t nbytes, bint full) noexcept nogil:
        """Whether the sticky partition has had its share now."""
        self._sticky_bytes += nbytes
        self._sticky_full = full
        return self._sticky_bytes >= (self._sticky_room_if_full if full else self._sticky_room)

    cdef void _let_go(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef Lane* lane
        for i in range(self._held_count):
            lane = &self._lanes[self._held[i]]
            if lane.builder != NULL and is_full(<MemoryRecordsBuilder>lane.builder):
                self._full[self._full_count] = self._held[i]
                self._full_count += 1
            lane.held = False
            lane.builder = NULL
            release_lock(&(<OpenBatch>lane.open)._lock)
        self._held_count = 0

    cdef int _prepare_sticky(self, StickyPartition sticky) except -1:
        self._sticky_partition = -1
        self._sticky_bytes = 0
        self._sticky_full = False
        if sticky is not None and not sticky.spent:
            self._sticky_partition = sticky.partition
            self._sticky_room = sticky.bytes_left(False)
            self._sticky_room_if_full = sticky.bytes_left(True)
        return 0

    cdef int _follow(self, Py_ssize_t partition) except -1:
        """The open batch is another one now: begin a run in it."""
        cdef OpenBatch batch = <OpenBatch>self._opens[partition]
        cdef MemoryRecordsBuilder builder
        cdef object delivery
        builder, delivery = batch.now_open()
        self._begin_run(partition, delivery, 0 if builder is None else builder.record_count)
        return 0

    cdef int _begin_run(self, Py_ssize_t partition, object delivery, Py_ssize_t first) except -1:
        """Note the run that was under way, if any; the next begins at first in another batch."""
        cdef Lane* lane = &self._lanes[partition]
        if lane.count > 0:
            self._sent.add_run(partition, self._deliveries[partition], lane.first, lane.count)
        lane.first = first
        lane.count = 0
        lane.delivery = NULL if delivery is None else <void*>delivery
        self._deliveries[partition] = delivery
        return 0

    cdef int _note_ended(self) except -1:
        """Note the runs that ended during a stint, before what follows them."""
        cdef Py_ssize_t i
        cdef EndedRun run
        for i in range(self._ended_count):
            run = self._ended[i]
            self._sent.add_run(run.partition, self._deliveries[run.partition], run.first, run.count)
        self._ended_count = 0
        return 0

    cdef int _note_full(self) except -1:
        cdef Py_ssize_t i
        for i in range(self._full_count):
            self.filled.append(self._full[i])
        self._full_count = 0
        return 0
