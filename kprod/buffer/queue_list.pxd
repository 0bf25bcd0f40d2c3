from libc.stdint cimport int32_t


cdef class QueueListMember:
    cdef readonly QueueList queue_list
    cdef readonly QueueListMember before
    cdef readonly QueueListMember after


cdef class QueueList:
    cdef readonly QueueListMember first
    cdef readonly QueueListMember last
    cdef readonly bint passing

    cpdef void join(self, QueueListMember one) except *
    cpdef void leave(self, QueueListMember one) except *


cdef class NodeQueues:
    cdef readonly int32_t node_id
    cdef readonly int acks
    cdef public Py_ssize_t batches_grow_to
    cdef readonly QueueList due
    cdef readonly QueueList lingering
