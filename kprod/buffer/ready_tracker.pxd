cimport cython
from libc.stdint cimport int64_t

from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.batch_queue cimport BatchQueue
from kprod.buffer.queue_list cimport QueueList, NodeQueues
from kprod.buffer.queue_depths cimport QueueDepths
from kprod.buffer.timers cimport Timers


@cython.no_gc           # only the caller that asked what is ready refers to it
cdef class Ready:
    cdef readonly dict nodes
    cdef readonly double next_check
    cdef readonly set leaderless
    cdef readonly object queued


cdef class ReadyTracker:
    cdef object _noted
    cdef dict _node_queues
    cdef dict _growth
    cdef dict _leaderless
    cdef QueueList _resting
    cdef QueueList _shut
    cdef Timers _timers
    cdef Timers _ages
    cdef object _snapshot
    cdef int64_t _snapshots
    cdef int64_t _looks
    cdef readonly QueueDepths depths

    cpdef void note(self, BatchQueue queue) except *
    cpdef void note_anew(self, BatchQueue queue) except *
    cpdef void forget(self, BatchQueue queue) except *
    cpdef void shut(self, BatchQueue queue) except *
    cpdef void reopened(self, BatchQueue queue) except *

    @cython.locals(queue=BatchQueue)
    cpdef void look(self, object snapshot, double now) except *

    cdef void _follow(self, object snapshot) except *

    @cython.locals(
        place=QueueList, batch=ProducerBatch, full=bint, queues_of_node=NodeQueues, when=double
    )
    cdef void _consider(self, BatchQueue queue, double now) except *

    @cython.locals(queues_of_node=NodeQueues)
    cdef void _find(self, BatchQueue queue) except *
    cdef QueueList _leaderless_of(self, object topic)
    cdef void _move(self, BatchQueue queue, QueueList place) except *
    cdef void _leave(self, BatchQueue queue) except *

    @cython.locals(queues_of_node=NodeQueues)
    cpdef dict node_queues(self, bint hurry)

    @cython.locals(queues_of_node=NodeQueues)
    cpdef list at(self, object node_id, object acks, bint hurry)

    cpdef double oldest(self) except? -1.0
    cpdef list take_older(self, double created_before)
    cpdef double next_look(self) except? -1.0


cdef double _due_at(ProducerBatch batch, object leader, double linger) except? -1.0
