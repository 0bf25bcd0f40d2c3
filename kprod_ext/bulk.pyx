# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Bulk calls: the compiled path of ``send`` in a loop that runs without the interpreter.

Records are written in order, each into the open batch of its partition, under the lock of that
partition's queue only. A record that needs the interpreter, usually for a new batch, is appended as
``send`` appends it, and the loop continues. So when the call stops, all records before the current
one are queued and none after it, in the same batches that a loop of sends makes.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawRealloc
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, UINT32_MAX, int32_t, int64_t, uint32_t

from kprod_ext.batch cimport BatchTail, has_filled, take_record_at
from kprod_ext.partition_queue cimport (
    AppendContext,
    AppendResult,
    PartitionQueue,
    StickyPartition,
    fetch_ahead,
)
from kprod_ext.record cimport (
    Field,
    LENGTHS,
    NO_TIME,
    RECORD_OVERHEAD,
    Record,
    body_size,
    now_without_gil,
    partition_of_key,
    payload_size,
    put_record,
)
from kprod_ext.rows cimport RecordChunk, UNSET, read_row
from kprod_ext.send cimport TopicAppender
from kprod_ext.shared cimport release_lock, spin_for_lock

from enum import IntEnum

cdef extern from *:
    Py_ssize_t PY_SSIZE_T_MAX
    BatchTail* kprod_get(BatchTail* place) noexcept nogil           # see shared.pxd

# Declared for borrowed references: counting a reference needs the GIL.
cdef extern from "Python.h":
    void* item_of "PyList_GET_ITEM" (PyObject* items, Py_ssize_t at) noexcept nogil


cdef struct Run:            # consecutive records of the call in one batch
    uint32_t end            # the number of the record after the last one
    uint32_t batch          # index in SentRecords._deliveries
    uint32_t first          # index of the first one in the batch


cdef struct Neighbours:     # runs of a batch without a gap between them
    Py_ssize_t place        # among all
    Py_ssize_t first
    Py_ssize_t count


@cython.final
cdef class SentRecords:
    """The positions of many records, as runs in the order of the records' numbers."""

    cdef readonly Py_ssize_t count
    cdef dict _batches              # number of a batch by its delivery
    cdef list _deliveries
    cdef Run* _runs
    cdef Py_ssize_t _run_count
    cdef Py_ssize_t _room

    def __cinit__(self):
        self._batches = {}
        self._deliveries = []

    def __dealloc__(self):
        PyMem_RawFree(self._runs)

    def add(self, delivery, Py_ssize_t index):
        """One more record: number ``index`` of the batch of ``delivery``."""
        if not 0 <= index <= UINT32_MAX:
            raise ValueError(f"no record of a batch has the number {index}")
        self.reserve(1)
        if not self.has_room():
            raise MemoryError("no memory to note where a record went")
        self.note(self.batch_of(delivery), index, 1)

    def runs(self):
        """(delivery, index of the first record, how many) of records that are neighbours there."""
        cdef list found = []
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t i
        cdef Run* run
        cdef Neighbours* neighbours
        cdef Neighbours* by_batch = <Neighbours*>PyMem_Calloc(
            <size_t>len(self._deliveries) + 1, sizeof(Neighbours)
        )
        if by_batch == NULL:
            raise MemoryError("no memory to look at the sent records")
        try:
            for i in range(self._run_count):
                run = &self._runs[i]
                neighbours = &by_batch[run.batch]
                if neighbours.first + neighbours.count != run.first or neighbours.count == 0:
                    if neighbours.count > 0:
                        found[neighbours.place] = self._described(run.batch, neighbours)
                    neighbours.place, neighbours.first, neighbours.count = len(found), run.first, 0
                    found.append(None)
                neighbours.count += run.end - start
                start = run.end
            for i in range(len(self._deliveries)):
                if by_batch[i].count > 0:
                    found[by_batch[i].place] = self._described(i, &by_batch[i])
        finally:
            PyMem_Free(by_batch)
        return found

    cdef tuple _described(self, Py_ssize_t batch, const Neighbours* neighbours):
        return self._deliveries[batch], neighbours.first, neighbours.count

    def locate(self, Py_ssize_t record):
        """(delivery, index in it) of a record."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self._run_count - 1
        cdef Py_ssize_t middle
        if not 0 <= record < self.count:
            raise IndexError(f"there is no record {record} among {self.count}")
        while low < high:
            middle = (low + high) // 2
            if record < self._runs[middle].end:
                high = middle
            else:
                low = middle + 1
        middle = self._runs[low - 1].end if low > 0 else 0
        return self._deliveries[self._runs[low].batch], self._runs[low].first + record - middle

    def records_of(self, list pieces not None):
        """The records of all (delivery, first index, count) given, in order."""
        cdef dict wanted = {}
        cdef list found = []
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t i, first, count, low, high
        cdef Run* run
        for delivery, first, count in pieces:
            wanted.setdefault(self._batches[delivery], []).append((first, first + count))
        for i in range(self._run_count):
            run = &self._runs[i]
            for low, high in wanted.get(run.batch, ()):
                low, high = low - run.first + start, high - run.first + start
                found.extend(range(max(low, start), min(high, run.end)))
            start = run.end
        return found

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Raise OverflowError when the count would exceed 32 bits."""
        if self.count + more > UINT32_MAX:
            raise OverflowError("at most 4,294,967,295 records fit in one call")
        return 0

    cdef Py_ssize_t batch_of(self, object delivery) except -1:
        """The number of a batch, for note()."""
        cdef object number = self._batches.get(delivery)
        if number is None:
            number = len(self._deliveries)
            self._deliveries.append(delivery)
            self._batches[delivery] = number
        return number

    cdef bint has_room(self) noexcept nogil:
        """Whether one more record can be noted; allocates memory for it if needed."""
        cdef Py_ssize_t room
        cdef void* moved
        if self._run_count < self._room:
            return True
        room = self._room + self._room // 2 + FIRST_RUNS
        moved = PyMem_RawRealloc(self._runs, <size_t>room * sizeof(Run))
        if moved != NULL:
            self._runs, self._room = <Run*>moved, room
        return moved != NULL

    cdef void note(self, Py_ssize_t batch, Py_ssize_t first, Py_ssize_t count) noexcept nogil:
        """Note the next records, neighbours in one batch. The caller has called has_room()."""
        cdef Run* last = &self._runs[self._run_count - 1]
        cdef Py_ssize_t start = self._runs[self._run_count - 2].end if self._run_count > 1 else 0
        if (
            self._run_count == 0
            or last.batch != batch
            or last.first + (self.count - start) != first
        ):
            last = &self._runs[self._run_count]
            last.batch, last.first = <uint32_t>batch, <uint32_t>first
            self._run_count += 1
        self.count += count
        last.end = <uint32_t>self.count


class BulkStop(IntEnum):
    """The reason why ``BulkAppender.write`` stopped."""

    DONE = 0
    """Every record of the chunk was written."""
    NO_MEMORY = 1
    """The next record needs a new batch of ``partition``, and the pool has no free memory."""
    NOT_ADMITTED = 2
    """The next record is the first for ``partition``, as far as the topic's appender knows."""
    NO_STICKY = 3
    """The next record has neither partition nor key, and no sticky partition has a share left."""


cdef enum:
    DONE                    # these four are BulkStop; those after them end a run, not the call
    NO_MEMORY
    NOT_ADMITTED
    NO_STICKY
    APPEND                  # the next record must be appended with the interpreter
    REPORT                  # stop to report full batches to the sender
    SHARE_OVER              # the share of the sticky partition is used up
    FIRST_RUNS = 16
    AROUND_VALUE = RECORD_OVERHEAD + LENGTHS    # bytes of a record besides its value, at most
    MOST_FILLED = 64
    MOST_UNREPORTED = 1024 * 1024    # after this many bytes, stop to report to the sender


cdef tuple STOPS = tuple(BulkStop)


cdef struct Place:          # the open batch of one partition
    BatchTail* tail         # of its PartitionQueue, which the topic keeps; NULL: not known yet
    void* delivery          # of the batch that took the last one, which SentRecords keeps
    uint32_t batch          # its number there
    # The count when this call left the batch; a different value means another thread appended.
    int32_t record_count


cdef bint only_values(RecordChunk chunk) noexcept nogil:
    """Whether rows have neither key, time, headers nor partition."""
    return not (chunk.keyed or chunk.stamped or chunk.placed or chunk.header_fields)


cdef Py_ssize_t take_values(
    BatchTail* tail, const Field* values, Py_ssize_t count, int64_t now, Py_ssize_t most
) noexcept nogil:
    """Append records with only a value to a batch that has records. Returns how many.

    Records that might not fit or might fill the batch, or might exceed ``most`` bytes, are left to
    ``take_record_at``. This writes the same bytes with a third of the instructions: the tail stays
    in registers, and the compiler knows the form of the record (decision 0092).
    """
    cdef char* start = tail.data + tail.end
    cdef char* out = start
    cdef char* before
    cdef Py_ssize_t room = min(<Py_ssize_t>tail.room - tail.end, most)
    cdef int64_t delta = now - tail.base_timestamp
    cdef int64_t offset = <int64_t>tail.last_offset + 1
    cdef Py_ssize_t largest = tail.max_record_size
    cdef Py_ssize_t taken = 0
    cdef Record record
    record.key.data = NULL
    record.key.size = -1
    record.headers = NULL
    record.header_count = 0
    while taken < count and offset <= INT32_MAX:
        record.value = values[taken]
        # Twice: `has_filled` asks for room for another record as large.
        if out - start + 2 * (max(record.value.size, 0) + AROUND_VALUE) >= room:
            break
        before = out
        out = put_record(
            out, &record, body_size(payload_size(&record), delta, offset), delta, offset
        )
        largest = max(largest, out - before)
        offset += 1
        taken += 1
    if taken > 0:
        tail.end += <int32_t>(out - start)
        tail.record_count += <int32_t>taken
        tail.last_offset += <int32_t>taken
        tail.max_record_size = <int32_t>largest
        tail.max_timestamp = max(tail.max_timestamp, now)
    return taken


@cython.final
cdef class BulkAppender:
    """Writes chunks of records into the batches of one topic."""

    cdef readonly Py_ssize_t partition_count
    cdef readonly Py_ssize_t partition      # that write() stopped at
    cdef readonly int64_t nbytes            # that the records of this call took
    cdef SentRecords _sent
    cdef TopicAppender _topic               # where the partitions' queues are found
    cdef Place* _places                     # by partition
    cdef int64_t _now                       # the time of records without one
    cdef list _stickies                     # partitions for records without a key, in turn
    cdef Py_ssize_t _sticky_count
    cdef Py_ssize_t _sticky                 # of those, the one in use; behind all: none
    # Partitions for which this call made or filled a batch, or is about to, unknown to the sender.
    cdef Py_ssize_t[MOST_FILLED] _filled
    cdef Py_ssize_t _filled_count
    # Bytes since the first of `_filled`; read where a batch or share ends.
    cdef int64_t _unreported

    # Of the run that is under way, in the batch of `partition`.
    cdef Py_ssize_t _run_first              # index in the batch of its first record
    cdef Py_ssize_t _run_bytes
    cdef Py_ssize_t _share                  # so many bytes are left of a sticky partition's share
    cdef Py_ssize_t _full_share             # the same if its batch gets full

    def __cinit__(self, TopicAppender topic not None, SentRecords sent not None):
        self._places = <Place*>PyMem_Calloc(<size_t>topic.partition_count, sizeof(Place))
        if self._places == NULL:
            raise MemoryError(f"no memory for {topic.partition_count} partitions")
        self.partition_count = topic.partition_count
        self._topic = topic
        self._sent = sent
        self._stickies = []

    def __dealloc__(self):
        PyMem_Free(self._places)

    @property
    def sticky(self):
        """The partition of the next record without a key; None when all shares are used up."""
        return self._stickies[self._sticky] if self._sticky < self._sticky_count else None

    def stick_to(self, list stickies not None):
        """Append records without a key to these partitions, one partition after the other."""
        self._stickies, self._sticky_count, self._sticky = stickies[:], len(stickies), 0

    def write(self, RecordChunk chunk not None):
        """Write the chunk's records from ``chunk.at`` on. Returns why it stopped."""
        cdef AppendContext context = self._topic._context
        cdef int stop = APPEND
        self._sent.reserve(chunk.to_come)
        try:
            while stop >= APPEND:
                if context is not None:
                    self._now = context.clock.now()     # its source may be Python code
                with nogil:
                    stop = self._write_rows(chunk)
                if stop == REPORT or self._unreported > MOST_UNREPORTED:
                    self._report_filled()
                if stop == APPEND and not self._append(chunk):
                    stop = NO_MEMORY
        finally:
            self._report_filled()
        return STOPS[stop]

    def appended(self, RecordChunk chunk not None, AppendResult result not None):
        """The chunk's next record was appended elsewhere."""
        cdef Place* place
        cdef object delivery = result.future.delivery
        if not 0 <= self.partition < self.partition_count:
            raise IndexError(f"there is no partition {self.partition}")
        place = &self._places[self.partition]
        place.batch = <uint32_t>self._sent.batch_of(delivery)
        place.delivery = <void*>delivery
        place.record_count = result.future.index + 1
        if not self._sent.has_room():
            raise MemoryError("no memory to note where a record went")
        self._sent.note(place.batch, result.future.index, 1)
        chunk.at += 1
        self._count(result.nbytes, result.batch_ready)

    cdef int _append(self, RecordChunk chunk) except -1:
        """Append the next record as ``send`` does. False when it has to wait for memory."""
        cdef PartitionQueue queue = self._topic._partitions[self.partition]
        cdef AppendResult result
        cdef Record record
        if not self._sent.has_room():
            raise MemoryError("no memory to note where a record goes")
        read_row(chunk, chunk.at, &record)
        if record.timestamp_ms == UNSET:
            record.timestamp_ms = NO_TIME
        if self._filled_count == MOST_FILLED:
            self._report_filled()
        # First: a signal handler may raise after the batch is queued, and `write` reports it to the
        # sender in any case.
        self._filled[self._filled_count] = self.partition
        self._filled_count += 1
        result = queue.append_or_open_batch(&record, None, True)
        if result is None:
            return False
        self._unreported += result.nbytes
        self.appended(chunk, result)
        return True

    cdef int _report_filled(self) except -1:
        """Report the filled batches to the sender."""
        cdef AppendContext context = self._topic._context
        cdef Py_ssize_t i
        if self._filled_count == 0:
            return 0
        for i in range(self._filled_count):
            context._on_change(self._topic._partitions[self._filled[i]])
        self._filled_count = self._unreported = 0
        context.wake()
        return 0

    cdef int _write_rows(self, RecordChunk chunk) noexcept nogil:
        """Write until a record stops it. Makes, refers to and releases no Python object."""
        cdef Record record
        cdef Place* place = NULL        # this thread holds the lock of its queue
        cdef Py_ssize_t partition
        cdef int stop = DONE
        while stop == DONE and (chunk.at < chunk.count or chunk.refill()):
            read_row(chunk, chunk.at, &record)
            partition = chunk.partitions[chunk.at] if chunk.placed else UNSET
            if partition == UNSET:
                partition = self._partition_for(&record.key)
            if place != NULL and partition != self.partition:
                self._leave(place, False)
                place = NULL
            if place == NULL:
                self.partition = partition
                stop = self._enter(&place)
            if stop == DONE:
                stop = self._write(chunk, place.tail, &record)
            if stop == DONE and only_values(chunk):
                self._write_values(chunk, place.tail)
            if stop == SHARE_OVER:
                self._leave(place, True)
                place = NULL
                stop = REPORT if self._unreported > MOST_UNREPORTED else DONE
        if place != NULL:
            self._leave(place, False)
        return stop

    cdef Py_ssize_t _partition_for(self, const Field* key) noexcept nogil:
        """The partition of a record that names none; UNSET when no sticky one has a share left."""
        if key.size >= 0:
            return partition_of_key(key.data, key.size, self.partition_count)
        while self._sticky < self._sticky_count:
            # Without its lock: another thread that spends the share at this moment is seen after
            # one record more, as if that record had come first.
            if not (<StickyPartition>self._stuck_to()).spent:
                return (<StickyPartition>self._stuck_to()).partition
            self._sticky += 1
        return UNSET

    cdef void* _stuck_to(self) noexcept nogil:
        """The sticky partition in use, as a borrowed reference."""
        return item_of(<PyObject*>self._stickies, self._sticky)

    cdef bint _is_sticky(self) noexcept nogil:
        """Whether ``partition`` is the sticky one: its bytes count towards the share."""
        return (
            self._sticky < self._sticky_count
            and (<StickyPartition>self._stuck_to()).partition == self.partition
        )

    cdef int _enter(self, Place** place) noexcept nogil:
        """Lock the queue of ``partition``, begin a run. Return DONE, or the reason for stopping."""
        cdef Place* entered
        if self.partition == UNSET:
            return NO_STICKY
        if self.partition >= self.partition_count:
            return NOT_ADMITTED
        entered = &self._places[self.partition]
        if entered.tail == NULL:
            # Acquire: with the tail come the queue and its fields (TopicAppender.admit).
            entered.tail = kprod_get(self._topic._entrances[self.partition].tail)
            if entered.tail == NULL:
                return NOT_ADMITTED
        if self._filled_count == MOST_FILLED:
            return REPORT
        if not self._sent.has_room():
            return APPEND
        spin_for_lock(&entered.tail.lock)
        if entered.tail.builder == NULL or entered.tail.delivery != entered.delivery:
            release_lock(&entered.tail.lock)
            return APPEND
        if entered.tail.record_count != entered.record_count:
            # Refresh the time so that it is not earlier than another thread's records.
            self._now = now_without_gil(self._topic._context.clock)
        self._run_first, self._run_bytes = entered.tail.record_count, 0
        self._share = self._full_share = PY_SSIZE_T_MAX
        if self._is_sticky():
            self._share = (<StickyPartition>self._stuck_to()).left(False)
            self._full_share = (<StickyPartition>self._stuck_to()).left(True)
        place[0] = entered
        return DONE

    cdef int _write(self, RecordChunk chunk, BatchTail* tail, Record* record) noexcept nogil:
        """Write the next record into the open batch of ``partition``."""
        cdef Py_ssize_t nbytes, share
        cdef bint full
        if record.timestamp_ms == UNSET:
            record.timestamp_ms = self._now
        nbytes = take_record_at(tail, record)
        if nbytes <= 0:
            return APPEND
        chunk.at += 1
        self._run_bytes += nbytes
        full = has_filled(tail, nbytes)
        fetch_ahead(tail, nbytes)
        if full:
            self._filled[self._filled_count] = self.partition
            self._filled_count += 1
        share = self._full_share if full else self._share
        return SHARE_OVER if self._run_bytes >= share else DONE

    cdef void _write_values(self, RecordChunk chunk, BatchTail* tail) noexcept nogil:
        """Write the rows after the one just written while they only add to its batch."""
        cdef Py_ssize_t before = tail.end
        chunk.at += take_values(
            tail,
            chunk.values + chunk.at,
            chunk.count - chunk.at,
            self._now,
            self._share - self._run_bytes,
        )
        self._run_bytes += tail.end - before

    cdef void _leave(self, Place* place, bint share_over) noexcept nogil:
        """End the present run, and unlock its queue."""
        cdef Py_ssize_t count = place.tail.record_count - self._run_first
        place.record_count = place.tail.record_count
        release_lock(&place.tail.lock)
        if count > 0:
            self._sent.note(place.batch, self._run_first, count)
            self._count(self._run_bytes, share_over)
        if self._filled_count > 0:
            self._unreported += self._run_bytes

    cdef void _count(self, Py_ssize_t nbytes, bint full) noexcept nogil:
        """Count bytes appended to ``partition``; ``full``: they filled its batch."""
        self.nbytes += nbytes
        if self._is_sticky():
            (<StickyPartition>self._stuck_to()).count(nbytes, full)
