"""Where the next record of a batch goes, and all that writing it changes: one line of a cache.

With thousands of partitions in use nothing of a batch is in any cache when its next record comes,
and each line that has to be fetched takes longer than writing the record does. So the tail of the
batch that takes a partition's records is kept where the partition is looked up, in its
``PartitionAppender``; that of any other batch is in its ``MemoryRecordsBuilder``, which also knows
what is needed only now and then.
"""

from libc.stdint cimport int32_t, int64_t

from kprod_ext.record_lock cimport RecordLock


cdef struct BatchTail:
    char* data                  # the batch's memory
    void* builder               # of the batch, NULL: there is none; its owner keeps it alive
    void* delivery              # of an PartitionAppender: what futures refer to, kept alive by it
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t end                 # where in the memory the next record goes, or the batch ends
    int32_t room                # a record after the first fits if it ends here; 0: ask the builder
    int32_t record_count
    int32_t last_offset         # -1: none
    int32_t max_record_size
    RecordLock lock             # of an PartitionAppender: guards its tail


cdef inline void clear_tail(BatchTail* tail) noexcept nogil:
    """No batch; the lock stays as it is."""
    tail.data = NULL
    tail.builder = tail.delivery = NULL
    tail.base_timestamp = tail.max_timestamp = -1
    tail.end = tail.room = tail.record_count = tail.max_record_size = 0
    tail.last_offset = -1


cdef inline void move_tail(BatchTail* source, BatchTail* tail) noexcept nogil:
    """Move a batch's state. Each tail keeps its own lock and delivery."""
    tail.data = source.data
    tail.builder = source.builder
    tail.base_timestamp = source.base_timestamp
    tail.max_timestamp = source.max_timestamp
    tail.end = source.end
    tail.room = source.room
    tail.record_count = source.record_count
    tail.last_offset = source.last_offset
    tail.max_record_size = source.max_record_size
