# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Where each of many records went, in a byte or two for each and one object for each batch.

A record's place is the number of its partition. The records of a place, in order, are cut into
runs: records that follow each other in one batch. So a record is found by counting those of its
place before it, and then looking up the run that holds that ordinal.

A run is noted first, in memory that was reserved before its records were written: they are queued,
and nothing may keep that from being known. It is filed later, when a lack of memory does no harm.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport UINT32_MAX, uint32_t


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
