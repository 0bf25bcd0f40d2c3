cimport cython
from libc.stdint cimport int64_t

from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.batch_queue cimport BatchQueue
from kprod.buffer.place cimport Place, Post
from kprod.buffer.queue_depths cimport QueueDepths
from kprod.buffer.timers cimport Timers


cdef class Attention:
    cdef object _noted
    cdef dict _posts
    cdef dict _leaderless
    cdef Place _resting
    cdef Place _shut
    cdef Timers _timers
    cdef Timers _ages
    cdef object _snapshot
    cdef int64_t _snapshots
    cdef int64_t _looks
    cdef readonly QueueDepths depths

    cpdef void note(self, BatchQueue queue) except *
    cpdef void note_anew(self, BatchQueue queue) except *
    cpdef void shut(self, BatchQueue queue) except *
    cpdef void reopened(self, BatchQueue queue) except *

    @cython.locals(queue=BatchQueue)
    cpdef void look(self, object snapshot, double now) except *

    cdef void _follow(self, object snapshot) except *

    @cython.locals(place=Place, batch=ProducerBatch, full=bint, post=Post, when=double)
    cdef void _consider(self, BatchQueue queue, double now) except *

    cdef void _find(self, BatchQueue queue) except *
    cdef Place _leaderless_of(self, object topic)
    cdef void _move(self, BatchQueue queue, Place place) except *
    cdef void _leave(self, BatchQueue queue) except *

    @cython.locals(post=Post)
    cpdef dict posts(self, bint hurry)

    @cython.locals(post=Post)
    cpdef list at(self, object node_id, object acks, bint hurry)

    cpdef double oldest(self) except? -1.0
    cpdef list take_older(self, double created_before)
    cpdef double next_look(self) except? -1.0


cdef double _due_at(ProducerBatch batch, object leader, double linger) except? -1.0
