cimport cython
from libc.stdint cimport int32_t, int64_t


cpdef int64_t advance(int64_t sequence, int64_t records) noexcept


cdef class PartitionSequence:
    cdef readonly object producer
    cdef readonly int32_t next_sequence
    cdef readonly list unresolved
    cdef readonly Py_ssize_t on_wire
    cdef readonly object proven_leader
    cdef readonly double proven_until
    cdef readonly int32_t anchor_sequence
    cdef readonly int64_t anchor_offset
    cdef readonly bint needs_new_epoch


cdef class Sequences:
    cdef readonly bint idempotent
    cdef public object producer
    cdef public object fatal
    cdef Py_ssize_t _max_in_flight
    cdef dict _partitions
    cdef dict _awaiting_epoch
    cdef dict _changed

    @cython.locals(found=PartitionSequence)
    cdef PartitionSequence _of(self, object tp)
    cpdef bint admits(self, object batch, object leader) except -1
    cpdef object take_changed(self)

    @cython.locals(state=PartitionSequence)
    cpdef void assign(self, object batch) except *
    cpdef void left(self, object batch) except *
    cdef void _start_over(self, PartitionSequence state) except *
    cdef void _number(self, PartitionSequence state, object batch) except *
    cpdef void off_wire(self, object batch) except *
    cpdef bint is_oldest(self, object batch) except -1
    cpdef bint is_provable(self, object batch) except -1
    cpdef bint leaves_room(self, object batch, int64_t base_offset) except -1
    cpdef bint all_resolved(self, object tp) except -1
    cpdef void acknowledged(self, object batch, int64_t base_offset) except *
    cpdef void resolved(self, object batch) except *
    cdef void _resolve(self, PartitionSequence state, object batch) except *
    cpdef void was_split(self, object batch, object parts) except *
    cpdef void want_new_epoch(self, object batch) except *
    cpdef list resequence(self)
    cdef void _bump_epoch(self) except *
