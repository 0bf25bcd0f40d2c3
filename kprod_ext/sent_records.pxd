cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset


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
