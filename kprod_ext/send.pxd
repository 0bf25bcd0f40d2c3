cimport cython
from libc.stdint cimport int64_t

from kprod_ext.batch cimport BatchTail
from kprod_ext.futures cimport FutureRecordMetadata
from kprod_ext.partition_queue cimport AppendContext, StickyPartition
from kprod_ext.process cimport Generation
from kprod_ext.record cimport Field, Record
from kprod_ext.shared cimport RecordLock, SharedFlag

cdef struct Entrance:
    BatchTail* tail         # of the partition's PartitionQueue; NULL: not admitted yet
    void* place             # guess of the next write address, for prefetch only; never dereferenced


@cython.final
@cython.no_gc_clear                         # the tails are there as long as their batches are
cdef class TopicAppender:
    cdef list _partitions                   # PartitionQueue by number; None: not used yet
    cdef Entrance* _entrances               # to them
    cdef AppendContext _context             # of all of them
    cdef readonly Py_ssize_t partition_count
    cdef Py_ssize_t _largest                # of key and value together, in bytes
    cdef StickyPartition _sticky            # for records without a key; None: Python path
    cdef RecordLock _lock                   # guards `_sticky` without a GIL
    cdef str _name                          # the topic's, as the object that was last sent to
    cdef SharedFlag _closed                 # TopicAppenders has dropped this one

    cdef StickyPartition _exchange(self, StickyPartition sticky)
    cdef StickyPartition _go_on(self, StickyPartition spent)
    cdef StickyPartition _stuck_to(self)

    # Return the record's future, or None when the Python path has to send it.
    cdef FutureRecordMetadata append_plain(
        self,
        object key,
        object value,
        object partition,
        object timestamp_ms,
    )
    cdef FutureRecordMetadata append_held(
        self, object key, object value, object headers, object partition, object timestamp_ms
    )
    cdef FutureRecordMetadata _append(self, Record* record, object partition, object timestamp_ms)
    cdef Py_ssize_t _place(
        self, const Field* key, object partition, StickyPartition sticky
    ) noexcept


@cython.final
cdef class TopicAppenders:
    cdef dict _appenders                        # topic -> TopicAppender; the same dict for ever


cdef class CompiledSend:
    cdef readonly TopicAppenders _topic_appenders
    cdef object _serialize                      # what makes bytes of keys and values, or None
    cdef TopicAppender _latest                  # of the last record that had one; for a GIL only
    cdef Generation _generation                 # of the process that it works in

    cdef TopicAppender _find_appender(self, object topic)
