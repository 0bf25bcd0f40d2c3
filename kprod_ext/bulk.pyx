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
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport UINT32_MAX, uint32_t

from kprod_ext cimport partition_queue
from kprod_ext.batch cimport (
    BatchTail,
    MemoryRecordsBuilder,
    ProducerBatch,
    holds_first,
    is_full,
    take_record,
    uncompressed_size,
)
from kprod_ext.partition_queue cimport PartitionQueue, StickyPartition
from kprod_ext.record cimport Field, Record, kprod_prefetch, partition_of_key, payload_size
from kprod_ext.record_clock cimport now_without_gil
from kprod_ext.rows cimport RecordChunk, UNSET, only_values, read_row
from kprod_ext.send cimport TopicAppender
from kprod_ext.shared cimport KPROD_HAS_GIL, release_lock, take_lock

from enum import IntEnum

# Where each of many records went, in a byte or two for each and one object for each batch.
#
# A record's place is the number of its partition. The records of a place, in order, are cut into
# runs: records that follow each other in one batch. So a record is found by counting those of its
# place before it, and then looking up the run that holds that ordinal.
#
# A run is noted first, in memory that was reserved before its records were written: they are
# queued, and nothing may keep that from being known. It is filed later, when a lack of memory does
# no harm.


@cython.final
@cython.no_gc
cdef class RecordRun:
    """Records of one place that follow each other in one batch."""


@cython.final
cdef class SentRecords:
    """The way from a record's number to its batch and its place in there."""

    def __cinit__(self):
        self._width = 1
        self._runs = []
        self._runs_by_place = {}

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._filed, self._waiting_count):
            Py_DECREF(<object>self._waiting[i].delivery)
        PyMem_Free(self._waiting)
        PyMem_Free(self._places)
        PyMem_Free(self._ordinals)

    @property
    def runs(self):
        self.file_runs()
        return self._runs

    def add(self, Py_ssize_t place, delivery, Py_ssize_t index):
        """One more record: it is the one at index in its batch."""
        if place < 0 or place > UINT32_MAX:
            raise ValueError(f"no place has the number {place}")
        self.reserve(1, place + 1)
        self.reserve_runs(1)
        put_place(self, place)
        self.add_run(place, delivery, index, 1)
        self.file_runs()

    def locate(self, Py_ssize_t record):
        """(delivery, index in it) of a record."""
        cdef list runs
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high, middle, ordinal
        cdef RecordRun run
        if not 0 <= record < self.count:
            raise IndexError(f"there is no record {record} among {self.count}")
        self.file_runs()
        self._number_ordinals()
        ordinal = self._ordinals[record]
        runs = <list>self._runs_by_place[place_of(self, record)]
        high = len(runs) - 1
        while low < high:
            middle = (low + high + 1) // 2
            run = <RecordRun>runs[middle]
            if run.ordinal <= ordinal:
                low = middle
            else:
                high = middle - 1
        run = <RecordRun>runs[low]
        return run.delivery, run.first + ordinal - run.ordinal

    def records_of(self, list pieces not None):
        """The records of all (place, first ordinal, count) given, in the order of their numbers."""
        cdef dict starts = {}
        cdef list found = []
        cdef Py_ssize_t record, place, ordinal, first, count
        cdef list waiting
        self.file_runs()
        self._number_ordinals()
        for place, first, count in sorted(pieces, reverse=True):
            starts.setdefault(place, []).append((first, first + count))
        for record in range(self.count):
            waiting = starts.get(place_of(self, record))
            if waiting is None:
                continue
            ordinal = self._ordinals[record]
            while waiting and ordinal >= (<tuple>waiting[len(waiting) - 1])[1]:
                waiting.pop()
            if waiting and ordinal >= (<tuple>waiting[len(waiting) - 1])[0]:
                found.append(record)
        return found

    cdef int reserve(self, Py_ssize_t more, Py_ssize_t places) except -1:
        """Make room for more records at places up to the given numbers."""
        cdef int width = 1 if places <= 1 << 8 else 2 if places <= 1 << 16 else 4
        cdef Py_ssize_t room = self.count + more
        cdef void* moved
        if room > UINT32_MAX:
            raise OverflowError("at most 4,294,967,295 records fit in one call")
        if width > self._width:
            self._widen(width)
        if room > self._room:
            room = max(room, self._room + self._room // 2)
            moved = PyMem_Realloc(self._places, <size_t>(room * self._width))
            if moved == NULL:
                raise MemoryError(f"no memory to note where {room} records go")
            self._places = moved
            self._room = room
        return 0

    cdef int _widen(self, int width) except -1:
        cdef void* narrow = self._places
        cdef int narrow_width = self._width
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t record
        cdef void* wide = PyMem_Malloc(<size_t>(max(self._room, 1) * width))
        if wide == NULL:
            raise MemoryError(f"no memory to note where {self._room} records go")
        for record in range(count):
            # Read as what it was, written as what it will be.
            self._places, self._width, self.count = narrow, narrow_width, count
            place = place_of(self, record)
            self._places, self._width, self.count = wide, width, record
            put_place(self, place)
        self._places, self._width, self.count = wide, width, count
        PyMem_Free(narrow)
        return 0

    cdef int reserve_runs(self, Py_ssize_t more) except -1:
        """Make room to note more runs."""
        cdef Py_ssize_t room = self._waiting_count + more
        cdef void* moved
        if room > self._waiting_room:
            room = max(room, self._waiting_room + self._waiting_room // 2)
            moved = PyMem_Realloc(self._waiting, <size_t>room * sizeof(WaitingRun))
            if moved == NULL:
                raise MemoryError(f"no memory to note {room} runs of records")
            self._waiting = <WaitingRun*>moved
            self._waiting_room = room
        return 0

    cdef int add_run(
        self, Py_ssize_t place, object delivery, Py_ssize_t first, Py_ssize_t count
    ) except -1:
        """The next records of a place are these; put_place() was or is called for each.

        It needs no memory as long as reserve_runs() has made room.
        """
        cdef WaitingRun* run
        if self._waiting_count == self._waiting_room:
            self.reserve_runs(1)
        run = &self._waiting[self._waiting_count]
        run.place, run.first, run.count, run.listed = place, first, count, False
        run.delivery = <PyObject*>delivery
        Py_INCREF(delivery)
        self._waiting_count += 1
        return 0

    cdef int file_runs(self) except -1:
        """Put the runs that were noted where they are looked up. May be tried again."""
        cdef WaitingRun* waiting
        with cython.critical_section(self):     # where there is no GIL: several may look at once
            while self._filed < self._waiting_count:
                waiting = &self._waiting[self._filed]
                self._file(waiting)
                self._filed += 1
                Py_DECREF(<object>waiting.delivery)
            self._filed = self._waiting_count = 0
        return 0

    cdef int finish_runs(self) except -1:
        """No more are noted, so file those there are. As file_runs() it may be tried again."""
        self.file_runs()
        PyMem_Free(self._waiting)
        self._waiting, self._waiting_room = NULL, 0
        return 0

    cdef int _file(self, WaitingRun* waiting) except -1:
        cdef list runs = self._runs_by_place.setdefault(waiting.place, [])
        cdef RecordRun last = None
        cdef RecordRun run
        if waiting.listed:
            runs.append(self._runs[len(self._runs) - 1])
            return 0
        if runs:
            last = <RecordRun>runs[len(runs) - 1]
            if last.delivery is <object>waiting.delivery:
                if last.first + last.count == waiting.first:
                    last.count += waiting.count
                    return 0
        run = RecordRun.__new__(RecordRun)
        run.place = waiting.place
        run.ordinal = 0 if last is None else last.ordinal + last.count
        run.delivery = <object>waiting.delivery
        run.first = waiting.first
        run.count = waiting.count
        self._runs.append(run)
        waiting.listed = True
        runs.append(run)
        return 0

    cdef int _number_ordinals(self) except -1:
        cdef uint32_t* ordinals
        cdef uint32_t* next_ordinals
        cdef Py_ssize_t record, place
        with self._lock:
            if self._ordinals != NULL:
                return 0
        ordinals = <uint32_t*>PyMem_Malloc(<size_t>max(self.count, 1) * sizeof(uint32_t))
        place = max(self._runs_by_place, default=0)
        next_ordinals = <uint32_t*>PyMem_Calloc(<size_t>(place + 1), sizeof(uint32_t))
        if ordinals == NULL or next_ordinals == NULL:
            PyMem_Free(ordinals)
            PyMem_Free(next_ordinals)
            raise MemoryError(f"no memory to look up {self.count} records")
        for record in range(self.count):
            place = place_of(self, record)
            ordinals[record] = next_ordinals[place]
            next_ordinals[place] += 1
        PyMem_Free(next_ordinals)
        with self._lock:
            if self._ordinals == NULL:      # else another thread was here meanwhile
                self._ordinals, ordinals = ordinals, NULL
        PyMem_Free(ordinals)
        return 0


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


class BulkStop(IntEnum):
    """What ``BulkAppender.write`` returns."""

    DONE = 0
    """Every record of the chunk was written."""
    NO_ROOM = 1
    """The next record needs a new batch of ``partition``, and no spare one can be it."""
    NOT_ADMITTED = 2
    """The next record is the first for ``partition``, as far as the topic's appender knows."""
    NO_STICKY = 3
    """The next record has neither partition nor key, and no sticky partition has a share left."""


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
        if self._topic._context is not None:
            self._topic._context.clock.now()    # its source may be Python: not to be asked below
        while stop == MOVED_ON:
            self._prepare_spares(spares)
            self._reserve_runs(chunk)
            if KPROD_HAS_GIL:
                partition_queue.writers_without_gil += 1
            with nogil:
                stop = self._write_locked(chunk)
            if KPROD_HAS_GIL:
                partition_queue.writers_without_gil -= 1
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
        self._now = now_without_gil(self._topic._context.clock)
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
        cdef ProducerBatch spare
        self._begun = self._spare_count = 0
        for spare in spares[:MOST_SPARES]:
            self._spares[self._spare_count].builder = <void*>spare
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
        cdef PartitionQueue appender = self._topic._partitions[partition]
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
