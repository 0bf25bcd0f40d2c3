# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Many records in one go: the compiled path of ``send`` in a loop without Python in it.

Records are written in the order in which they were given, each into the open batch of its
partition. So when the loop stops, all records before the one at hand are queued and none after it;
batches are cut where a loop of sends would cut them. The loop locks a batch when it first needs it,
and keeps the lock until it stops.

Getting the interpreter back can take longer than filling a batch. So the loop goes on where a batch
is full, in a spare batch that no other thread knows until it is published, and where a sticky
partition has had its share, in the one that comes next.
"""

cimport cython
from cpython.exc cimport PyErr_SetObject
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc

from kprod_ext.batch_tail cimport BatchTail
from kprod_ext.bulk_stop import BulkStop
from kprod_ext.compiled_send cimport TopicAppender
from kprod_ext.murmur2 cimport partition_of_key
from kprod_ext cimport partition_appender
from kprod_ext.partition_appender cimport PartitionAppender
from kprod_ext.prefetch cimport kprod_prefetch
from kprod_ext.record_chunk cimport UNSET, RecordChunk, only_values, read_row
from kprod_ext.record_clock cimport now_without_gil
from kprod_ext.record_layout cimport Field, Record, payload_size
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

cdef extern from *:
    Py_ssize_t PY_SSIZE_T_MAX
    BatchTail* kprod_get(BatchTail* place) noexcept nogil           # see shared.pxd

cdef enum:
    DONE                    # these four are BulkStop
    NO_ROOM
    NOT_ADMITTED
    NO_STICKY
    REFUSED                 # the next record is not one a batch can hold
    MOVED_ON                # the open batch of `partition` is another one now
    AHEAD = 8
    LENGTHS_AROUND = 8      # bytes that most records take besides key, value and headers
    TRIES = 100             # to publish a batch: a lack of memory may pass


cdef tuple STOPS = tuple(BulkStop)


@cython.final
@cython.no_gc
cdef class BulkTurn:
    """One bulk call at a time locks several batches: so no two threads wait for each other."""


@cython.final
cdef class BulkAppender:
    """Writes chunks of records into the open batches of one topic."""

    def __cinit__(
        self, TopicAppender topic not None, BulkTurn turn not None, SentRecords sent not None
    ):
        cdef size_t count = <size_t>topic.partition_count
        self._runs = <Run*>PyMem_Calloc(count, sizeof(Run))
        self._locked = <Py_ssize_t*>PyMem_Malloc(count * sizeof(Py_ssize_t))
        self._ended = <EndedRun*>PyMem_Malloc(count * sizeof(EndedRun))
        self._full = <Py_ssize_t*>PyMem_Malloc(count * sizeof(Py_ssize_t))
        if not (self._runs and self._locked and self._ended and self._full):
            raise MemoryError(f"no memory for {count} partitions")
        self.partition_count = topic.partition_count
        self.filled = []
        self._deliveries = [None] * topic.partition_count
        self._topic = topic
        self._turn = turn
        self._sent = sent

    def __dealloc__(self):
        PyMem_Free(self._runs)
        PyMem_Free(self._locked)
        PyMem_Free(self._ended)
        PyMem_Free(self._full)

    def write(
        self, RecordChunk chunk not None, list stickies not None, list spares not None, publish
    ):
        """Write the chunk's records from ``chunk.at`` on; why it stopped."""
        cdef int stop = MOVED_ON
        self.filled = []
        self._sent.reserve(chunk.count - chunk.at + chunk.to_follow(), self.partition_count)
        self._prepare_shares(stickies)
        if self._topic._clock is not None:
            self._topic._clock.now()        # its source may be Python code: not to be asked below
        while stop == MOVED_ON:
            self._prepare_spares(spares)
            self._reserve_runs(chunk)
            if KPROD_HAS_GIL:
                partition_appender.writers_without_gil += 1
            with nogil:
                stop = self._write_locked(chunk)
            if KPROD_HAS_GIL:
                partition_appender.writers_without_gil -= 1
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
        self._runs[self.partition].count = 1
        chunk.at += 1

    def finish(self):
        """Note the runs that are under way: nothing more is written."""
        cdef Py_ssize_t partition
        self._note_ended()
        for partition in range(self.partition_count):
            if self._runs[partition].count > 0:
                self._begin_run(partition, None, 0)
        try:
            self._sent.finish_runs()
        except MemoryError:
            pass            # done when a record is looked up

    cdef int _write_locked(self, RecordChunk chunk) noexcept nogil:
        """Write until something stops it. No Python object is made, referred to or let go."""
        self._turn.lock.acquire()
        cdef int stop = self._write_rows(chunk)
        self._unlock_all()
        self._turn.lock.release()
        return stop

    cdef int _write_rows(self, RecordChunk chunk) noexcept nogil:
        cdef Record record
        cdef Py_ssize_t partition, nbytes
        cdef Run* run
        while chunk.at < chunk.count or chunk.refill():
            if chunk.at + AHEAD < chunk.count:
                kprod_prefetch(chunk.values[chunk.at + AHEAD].data)
            read_row(chunk, chunk.at, &record)
            partition = chunk.partitions[chunk.at] if chunk.placed else UNSET
            if partition == UNSET:
                partition = self._partition_for(&record.key)
                if partition < 0:
                    return NO_STICKY
            self.partition = partition
            if partition >= self.partition_count or self._tail_of(partition) == NULL:
                return NOT_ADMITTED
            run = &self._runs[partition]
            if not run.locked and not self._lock(partition):
                return MOVED_ON
            if record.timestamp_ms == UNSET:
                record.timestamp_ms = self._now
            if run.builder != NULL and only_values(chunk) and self._take_values(chunk) > 0:
                continue
            nbytes = 0
            if run.builder != NULL:
                nbytes = take_record(<MemoryRecordsBuilder>run.builder, &record)
            if nbytes == 0 and self._begin_spare(partition, &record):
                nbytes = take_record(<MemoryRecordsBuilder>run.builder, &record)
            if nbytes <= 0:
                if self.record_bytes == 0:
                    self.record_bytes = LENGTHS_AROUND + max(payload_size(&record), 0)
                return NO_ROOM if nbytes == 0 else REFUSED
            put_place(self._sent, partition)
            run.count += 1
            chunk.at += 1
            if self.share < self._share_count and partition == self._shares[self.share].partition:
                self._count_sticky(nbytes, is_full(<MemoryRecordsBuilder>run.builder))
        return DONE

    cdef Py_ssize_t _take_values(self, RecordChunk chunk) noexcept nogil:
        """Write values into the open batch of ``partition`` while that is all there is to do."""
        cdef Run* run = &self._runs[self.partition]
        cdef bint shared = (
            self.share < self._share_count and self._shares[self.share].partition == self.partition
        )
        cdef Py_ssize_t most = PY_SSIZE_T_MAX
        cdef Py_ssize_t before = uncompressed_size(<MemoryRecordsBuilder>run.builder)
        cdef Py_ssize_t taken
        if shared:
            most = bytes_left(&self._shares[self.share], False)
        taken = take_values(
            <MemoryRecordsBuilder>run.builder,
            chunk.values + chunk.at,
            chunk.count - chunk.at,
            self._now,
            most,
        )
        if taken > 0:
            put_places(self._sent, self.partition, taken)
            run.count += taken
            chunk.at += taken
            if shared:
                self._count_sticky(
                    uncompressed_size(<MemoryRecordsBuilder>run.builder) - before,
                    is_full(<MemoryRecordsBuilder>run.builder),
                )
        return taken

    cdef Py_ssize_t _partition_for(self, const Field* key) noexcept nogil:
        """The partition of a record that names none, UNSET when it needs another sticky one."""
        if key.size < 0:
            return self._shares[self.share].partition if self.share < self._share_count else UNSET
        return partition_of_key(key.data, key.size, self.partition_count)

    cdef BatchTail* _tail_of(self, Py_ssize_t partition) noexcept nogil:
        """Where records of the partition go; NULL: it was not used yet."""
        cdef Run* run = &self._runs[partition]
        if run.tail == NULL:
            run.tail = kprod_get(self._topic._entrances[partition].tail)
        return run.tail

    cdef bint _lock(self, Py_ssize_t partition) noexcept nogil:
        """Lock the partition's open batch; False: the run does not go on in it."""
        cdef Run* run = &self._runs[partition]
        take_lock(&run.tail.lock)
        run.locked = True
        self._locked[self._locked_count] = partition
        self._locked_count += 1
        # With each lock: what others have appended until now has no later time.
        self._now = now_without_gil(self._topic._clock)
        run.builder = run.tail.builder
        if run.builder == NULL:
            return True
        if run.delivery != run.tail.delivery:
            return False
        if run.tail.record_count != run.first + run.count:
            # Another call has appended since. One run of a partition at most ends so: its lock is
            # kept from then on, and _ended has room for it.
            if run.count > 0:
                self._ended[self._ended_count].partition = partition
                self._ended[self._ended_count].first = run.first
                self._ended[self._ended_count].count = run.count
                self._ended_count += 1
            run.first = run.tail.record_count
            run.count = 0
        return True

    cdef bint _begin_spare(self, Py_ssize_t partition, const Record* record) noexcept nogil:
        """Go on in a batch of our own, which the record must fit into; False if there is none."""
        cdef Run* run = &self._runs[partition]
        cdef SpareRun* spare
        if self._begun == self._spare_count:
            return False
        spare = &self._spares[self._begun]
        if not holds_first(<MemoryRecordsBuilder>spare.builder, record):
            return False
        self._begun += 1
        if run.builder != NULL:
            (<MemoryRecordsBuilder>run.builder).sum_records()
        spare.partition, spare.first, spare.count = partition, run.first, run.count
        run.builder = spare.builder
        run.first = run.count = 0
        return True

    cdef void _count_sticky(self, Py_ssize_t nbytes, bint full) noexcept nogil:
        """The sticky partition got so many bytes; it may have had its share now."""
        cdef StickyShare* share = &self._shares[self.share]
        share.bytes += nbytes
        share.full = full
        if bytes_left(share, full) <= 0:
            self.share += 1

    cdef void _unlock_all(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef Run* run
        for i in range(self._locked_count):
            run = &self._runs[self._locked[i]]
            if run.builder != NULL:
                self.record_bytes = bytes_per_record(<MemoryRecordsBuilder>run.builder)
                if is_full(<MemoryRecordsBuilder>run.builder):
                    (<MemoryRecordsBuilder>run.builder).sum_records()
                    self._full[self._full_count] = self._locked[i]
                    self._full_count += 1
            run.locked = False
            run.builder = NULL
            release_lock(&run.tail.lock)
        self._locked_count = 0

    cdef int _prepare_shares(self, list stickies) except -1:
        cdef StickyPartition sticky
        cdef StickyShare* share
        self.share = self._share_count = 0
        for sticky in stickies[:MOST_SHARES]:
            share = &self._shares[self._share_count]
            share.partition = sticky.partition
            share.batch_size = sticky.batch_size
            share.before = sticky.produced()
            share.bytes = 0
            share.full = False
            self.share += sticky.spent and self.share == self._share_count
            self._share_count += 1
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
        """Make room to note all runs of one write without the GIL, and those under way after it."""
        cdef Py_ssize_t records = self._sent.count + chunk.count - chunk.at + chunk.to_follow()
        self._sent.reserve_runs(2 * min(self.partition_count, records) + self._spare_count + 2)
        return 0

    cdef int _publish(self, list spares, object publish) except -1:
        """Let the sender know of the batches that were begun, and note the runs in them."""
        # Later records are queued already: without memory it is tried again, and told at the end.
        cdef object delivery, trouble = None
        cdef Py_ssize_t i, partition
        cdef SpareRun* spare
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
            self._runs[partition].delivery = NULL if delivery is None else <void*>delivery
        del spares[:self._begun]
        if trouble is not None:
            PyErr_SetObject(type(trouble), trouble)
            return -1
        return 0

    cdef int _follow(self, Py_ssize_t partition) except -1:
        """The open batch is another one now: begin a run in it."""
        cdef Py_ssize_t records
        cdef PartitionAppender appender = self._topic._partitions[partition]
        cdef object delivery = appender.now_open(&records)
        self._begin_run(partition, delivery, records)
        return 0

    cdef int _begin_run(self, Py_ssize_t partition, object delivery, Py_ssize_t first) except -1:
        """Note the run that was under way, if any; the next begins at first in another batch."""
        cdef Run* run = &self._runs[partition]
        if run.count > 0:
            self._sent.add_run(partition, self._deliveries[partition], run.first, run.count)
        run.first, run.count = first, 0
        run.delivery = NULL if delivery is None else <void*>delivery
        self._deliveries[partition] = delivery
        return 0

    cdef int _note_ended(self) except -1:
        """Note the runs that ended meanwhile, before what follows them."""
        cdef EndedRun run
        cdef Py_ssize_t i
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
