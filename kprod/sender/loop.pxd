cimport cython

from kprod.buffer.accumulator cimport RecordAccumulator
from kprod.sender.baton cimport Baton
from kprod.sender.network cimport Network
from kprod.sender.rounds.identity cimport IdentityRound
from kprod.sender.rounds.metadata cimport MetadataRound
from kprod.sender.rounds.produce cimport ProduceRound
from kprod_ext.shared cimport SharedFlag, SharedTime


cdef class Sender:
    cdef readonly Baton baton
    cdef readonly RecordAccumulator accumulator
    cdef readonly object metadata
    cdef readonly Network network
    cdef readonly object clock
    cdef MetadataRound _metadata_round
    cdef IdentityRound _identity_round
    cdef ProduceRound _produce_round
    cdef bint _broke_off
    cdef SharedFlag _sends_no_more

    @cython.locals(now=double, wait=double)
    cpdef void turn(self, double longest=*) except *

    @cython.locals(wait=double)
    cdef double _rounds(self, double now) except? -1


cdef class SenderThread:
    cdef public Py_ssize_t disowned
    cdef Sender _sender
    cdef Baton _baton
    cdef object _ended
    cdef object _settled
    cdef object _lock
    cdef SharedTime _stop_at
    cdef object _thread

    cdef bint _goes_on(self) except -1
    cdef void _work(self) except *
    cdef bint _over(self) except -1
    cdef void _turn_safely(self) except *
    cdef void _survive(self, object error) except *
