cimport cython
from libc.stdint cimport int32_t, int64_t

from kprod.buffer.batch cimport ProducerBatch


cpdef int64_t advance(int64_t sequence, int64_t records) noexcept


cdef bint _same(object one, object other) except -1


cdef class PartitionSequence:
    cdef readonly object tp
    cdef readonly object producer
    cdef readonly int32_t next_sequence
    cdef readonly list in_flight
    cdef readonly Py_ssize_t on_wire
    cdef readonly object proven_leader
    cdef readonly double proven_until
    cdef readonly int32_t anchor_sequence
    cdef readonly int64_t anchor_offset
    cdef readonly bint needs_new_epoch
    cdef readonly bint has_gap
    cdef readonly bint refused


cdef class Sequences:
    cdef readonly bint idempotent
    cdef public object producer
    cdef public object fatal
    cdef public object identity_trouble
    cdef public object transactions
    cdef Py_ssize_t _max_in_flight
    cdef dict _partitions
    cdef dict _awaiting_epoch
    cdef list _changed

    @cython.locals(state=PartitionSequence, idle=list, known=bint)
    cpdef void forget(self, object partitions) except *

    @cython.locals(found=PartitionSequence)
    cdef PartitionSequence _of(self, object tp)

    @cython.locals(state=PartitionSequence)
    cdef PartitionSequence _of_batch(self, ProducerBatch batch)

    @cython.locals(state=PartitionSequence)
    cpdef bint admits(self, ProducerBatch batch, object leader) except -1

    @cython.locals(oldest=ProducerBatch, proven=bint)
    cdef bint _admits(
        self, PartitionSequence state, ProducerBatch batch, object leader
    ) except -1
    cdef bint _may_send(self, object tp) except -1
    cpdef list take_changed(self)
    cpdef void reopened(self, object partitions) except *
    cdef void _note_change(self, PartitionSequence state) except *

    @cython.locals(state=PartitionSequence)
    cpdef void assign(self, ProducerBatch batch) except *
    cpdef void left(self, ProducerBatch batch) except *
    cdef void _start_over(self, PartitionSequence state) except *
    cdef void _number(self, PartitionSequence state, ProducerBatch batch) except *
    cpdef void off_wire(self, ProducerBatch batch) except *
    cpdef bint is_oldest(self, ProducerBatch batch) except -1
    cpdef bint is_provable(self, ProducerBatch batch) except -1
    cpdef bint leaves_room(self, ProducerBatch batch, int64_t base_offset) except -1
    cpdef bint all_resolved(self, object tp) except -1

    @cython.locals(records=int64_t, earlier=ProducerBatch)
    cpdef void acknowledged(self, ProducerBatch batch, int64_t base_offset) except *
    cpdef void resolved(self, ProducerBatch batch) except *
    cdef void _open_gap(self, PartitionSequence state, ProducerBatch batch) except *
    cdef bint _is_of_a_new_log(self, PartitionSequence state, ProducerBatch batch) except -1
    cdef void _resolve(self, PartitionSequence state, ProducerBatch batch) except *
    cpdef void was_split(self, ProducerBatch batch, object parts) except *
    cpdef void want_new_epoch(self, ProducerBatch batch) except *
    cpdef list resequence(self)
    cdef void _bump_epoch(self) except *
