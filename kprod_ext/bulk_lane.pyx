# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Many records in one go: a loop over ``send``'s compiled lane, without Python in it.

Records are written one after the other, in the order in which they were given, each into the open
batch of its partition. So whatever stops the loop, all records before the one at hand are queued
and none after it; batches are cut exactly where a loop of sends would cut them. The locks of the
batches are taken when first needed and kept until the loop stops.

Getting the interpreter back can take longer than filling a batch: somebody else may hold it, and to
wake up takes its time, too. So the loop need not stop where a batch is full or a sticky partition
has had its share: it is given batches to go on in, which nobody knows until they are published, and
the sticky partitions that come next.
"""

cimport cython
from cpython.exc cimport PyErr_SetObject
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t

from kprod_ext.murmur2 cimport murmur2_hash
from kprod_ext cimport open_batch
from kprod_ext.open_batch cimport OpenBatch
from kprod_ext.prefetch cimport kprod_prefetch
from kprod_ext.record_chunk cimport UNSET, RecordChunk, only_values, read_row
from kprod_ext.record_layout cimport Record
from kprod_ext.record_lock cimport release_lock, take_lock
from kprod_ext.records_builder cimport (
    MemoryRecordsBuilder,
    holds_first,
    is_full,
    take_record,
    uncompressed_size,
)
from kprod_ext.sent_records cimport SentRecords, put_place, put_places
from kprod_ext.shared cimport KPROD_HAS_GIL
from kprod_ext.sticky_partition cimport StickyPartition
from kprod_ext.value_run cimport take_values
from kprod_ext.wall_clock cimport kprod_wall_ms

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

cdef enum:
    DONE = 0                # every record was written
    NO_ROOM = 1             # the next one needs a new batch of `partition`
    UNKNOWN = 2             # the open batch of `partition` must be admitted first
    STICKY = 3              # the next one needs a sticky partition to go to
    REFUSED = 4             # the next one is not one a batch can hold
    MOVED_ON = 5            # the open batch of `partition` is another one now
    POSITIVE = 0x7FFFFFFF
    AHEAD = 8
    TRIES = 100             # to publish a batch: a lack of memory may pass

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

    def write(
        self, RecordChunk chunk not None, list stickies not None, list spares not None, publish
    ):
        """Write the chunk's records from ``chunk.at`` on; why it stopped."""
        cdef int stop = MOVED_ON
        self.filled = []
        self._sent.reserve(chunk.count - chunk.at + chunk.to_follow(), self.partition_count)
        self._prepare_shares(stickies)
        while stop == MOVED_ON:
            self._prepare_spares(spares)
            self._reserve_runs(chunk)
            if KPROD_HAS_GIL:
                open_batch.writers_without_gil += 1
            with nogil:
                stop = self._stint(chunk)
            if KPROD_HAS_GIL:
                open_batch.writers_without_gil -= 1
            self._note_ended()
            self._publish(spares, publish)      # before all that needs memory
            self._note_full()
            if stop == MOVED_ON:
                self._follow(self.partition)
        self._count_shares(stickies)
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
        try:
            self._sent.finish_runs()
        except MemoryError:
            pass            # whoever looks up a record does it

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
            if not lane.held and not self._seize(partition):
                return MOVED_ON
            if lane.builder != NULL and only_values(chunk) and self._take_values(chunk, now) > 0:
                continue
            nbytes = 0
            if lane.builder != NULL:
                nbytes = take_record(<MemoryRecordsBuilder>lane.builder, &record)
            if nbytes == 0 and self._begin_spare(partition, &record):
                nbytes = take_record(<MemoryRecordsBuilder>lane.builder, &record)
            if nbytes <= 0:
                return NO_ROOM if nbytes == 0 else REFUSED
            put_place(self._sent, partition)
            lane.count += 1
            chunk.at += 1
            if self.share < self._share_count and partition == self._shares[self.share].partition:
                self._count_sticky(nbytes, is_full(<MemoryRecordsBuilder>lane.builder))
        return DONE

    cdef Py_ssize_t _take_values(self, RecordChunk chunk, int64_t now) noexcept nogil:
        """Write values into the open batch of ``partition`` while that is all there is to do."""
        cdef Lane* lane = &self._lanes[self.partition]
        cdef bint shared = (
            self.share < self._share_count and self._shares[self.share].partition == self.partition
        )
        cdef Py_ssize_t most = PY_SSIZE_T_MAX
        cdef Py_ssize_t before = uncompressed_size(<MemoryRecordsBuilder>lane.builder)
        cdef Py_ssize_t taken
        if shared:
            most = self._shares[self.share].room - self._shares[self.share].bytes
        taken = take_values(
            <MemoryRecordsBuilder>lane.builder,
            chunk.values + chunk.at,
            chunk.count - chunk.at,
            now,
            most,
        )
        if taken > 0:
            put_places(self._sent, self.partition, taken)
            lane.count += taken
            chunk.at += taken
            if shared:
                self._count_sticky(
                    uncompressed_size(<MemoryRecordsBuilder>lane.builder) - before,
                    is_full(<MemoryRecordsBuilder>lane.builder),
                )
        return taken

    cdef Py_ssize_t _choose(self, const char* key, Py_ssize_t size) noexcept nogil:
        if size < 0:
            return self._shares[self.share].partition if self.share < self._share_count else UNSET
        return <Py_ssize_t>(
            murmur2_hash(<const unsigned char*>key, size) & <unsigned int>POSITIVE
        ) % self.partition_count

    cdef bint _seize(self, Py_ssize_t partition) noexcept nogil:
        """Take the lock of a partition's open batch; False: the run does not go on in it."""
        cdef Lane* lane = &self._lanes[partition]
        take_lock(&(<OpenBatch>lane.open).tail.lock)
        lane.held = True
        self._held[self._held_count] = partition
        self._held_count += 1
        lane.builder = (<OpenBatch>lane.open).builder_address()
        if lane.builder == NULL:
            return True
        if lane.delivery != (<OpenBatch>lane.open).delivery_address():
            return False
        if (<MemoryRecordsBuilder>lane.builder)._tail.record_count != lane.first + lane.count:
            # Somebody else has appended since. At most one run of a partition ends so, as its lock
            # is then kept until the stint is over: _ended has room for it.
            if lane.count > 0:
                self._ended[self._ended_count].partition = partition
                self._ended[self._ended_count].first = lane.first
                self._ended[self._ended_count].count = lane.count
                self._ended_count += 1
            lane.first = (<MemoryRecordsBuilder>lane.builder)._tail.record_count
            lane.count = 0
        return True

    cdef bint _begin_spare(self, Py_ssize_t partition, const Record* record) noexcept nogil:
        """Go on in a batch of our own, which the record must fit into; False if there is none."""
        cdef Lane* lane = &self._lanes[partition]
        cdef Spare* spare
        if lane.builder != NULL:
            self.per_batch = (<MemoryRecordsBuilder>lane.builder)._tail.record_count
        if self._begun == self._spare_count:
            return False
        spare = &self._spares[self._begun]
        if not holds_first(<MemoryRecordsBuilder>spare.builder, record):
            return False
        self._begun += 1
        if lane.builder != NULL:
            (<MemoryRecordsBuilder>lane.builder).sum_records()
        spare.partition, spare.first, spare.count = partition, lane.first, lane.count
        lane.builder = spare.builder
        lane.first = lane.count = 0
        return True

    cdef void _count_sticky(self, Py_ssize_t nbytes, bint full) noexcept nogil:
        """The sticky partition got so many bytes; it may have had its share now."""
        cdef Share* share = &self._shares[self.share]
        share.bytes += nbytes
        share.full = full
        if share.bytes >= (share.room_if_full if full else share.room):
            self.share += 1

    cdef void _let_go(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef Lane* lane
        for i in range(self._held_count):
            lane = &self._lanes[self._held[i]]
            if lane.builder != NULL and is_full(<MemoryRecordsBuilder>lane.builder):
                (<MemoryRecordsBuilder>lane.builder).sum_records()
                self._full[self._full_count] = self._held[i]
                self._full_count += 1
            lane.held = False
            lane.builder = NULL
            release_lock(&(<OpenBatch>lane.open).tail.lock)
        self._held_count = 0

    cdef int _prepare_shares(self, list stickies) except -1:
        cdef StickyPartition sticky
        cdef Share* share
        self.share = self._share_count = 0
        for sticky in stickies[:MOST_SHARES]:
            share = &self._shares[self._share_count]
            share.partition = sticky.partition
            share.room = 0 if sticky.spent else sticky.bytes_left(False)
            share.room_if_full = sticky.bytes_left(True)
            share.bytes = 0
            share.full = False
            self._share_count += 1
            if share.room <= 0 and self.share == self._share_count - 1:
                self.share += 1
        return 0

    cdef int _count_shares(self, list stickies) except -1:
        cdef Py_ssize_t i
        for i in range(self._share_count):
            if self._shares[i].bytes > 0:
                (<StickyPartition>stickies[i]).add(self._shares[i].bytes, self._shares[i].full)
        return 0

    cdef int _prepare_spares(self, list spares) except -1:
        cdef MemoryRecordsBuilder builder
        self._begun = self._spare_count = 0
        for spare in spares[:MOST_SPARES]:
            builder = spare.builder
            self._spares[self._spare_count].builder = <void*>builder
            self._spare_count += 1
        return 0

    cdef int _reserve_runs(self, RecordChunk chunk) except -1:
        """Make room to note all runs of a stint, and those that are under way when it is over."""
        cdef Py_ssize_t records = self._sent.count + chunk.count - chunk.at + chunk.to_follow()
        cdef Py_ssize_t lanes = min(self.partition_count, records)
        self._sent.reserve_runs(2 * lanes + self._spare_count + 2)
        return 0

    cdef int _publish(self, list spares, object publish) except -1:
        """Let the sender know of the batches that were begun, and note the runs in them.

        Later records are queued already. So if there is no memory to do it, it is tried again, and
        the error told at the end.
        """
        cdef object delivery, trouble = None
        cdef Py_ssize_t i, partition
        cdef Spare* spare
        if self._begun == 0:
            return 0
        for i in range(self._begun):
            spare = &self._spares[i]
            partition = spare.partition
            if spare.count > 0:
                self._sent.add_run(
                    partition, self._deliveries[partition], spare.first, spare.count
                )
            delivery = None
            for _ in range(TRIES):
                try:
                    delivery = publish(partition, spares[i])
                    break
                except BaseException as error:
                    trouble = error
            self._deliveries[partition] = delivery
            self._lanes[partition].delivery = NULL if delivery is None else <void*>delivery
        del spares[:self._begun]
        if trouble is not None:
            PyErr_SetObject(type(trouble), trouble)
            return -1
        return 0

    cdef int _follow(self, Py_ssize_t partition) except -1:
        """The open batch is another one now: begin a run in it."""
        cdef Py_ssize_t records
        cdef object delivery = (<OpenBatch>self._opens[partition]).now_open(&records)
        self._begin_run(partition, delivery, records)
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
