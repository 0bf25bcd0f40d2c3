cimport cython
from libc.stdint cimport int32_t

from kprod_ext.prefetch cimport CACHE_LINE, kprod_prefetch, kprod_prefetch_to_write
from kprod_ext.record_future cimport RecordFuture, new_future
from kprod_ext.record_layout cimport Record
from kprod_ext.record_lock cimport RecordLock, release_lock, take_lock
from kprod_ext.records_builder cimport REFUSED, MemoryRecordsBuilder, is_full, take_record


@cython.final
cdef class OpenBatch:
    cdef RecordLock _lock                   # guards all below, and writing into the builder
    cdef MemoryRecordsBuilder _builder      # None: nobody may append
    cdef object _delivery
    cdef void* _buffer                      # what the next append will touch, as far as is known:
    cdef char* _tail                        # to be fetched early, never to be followed
    cdef bint _bare                         # the futures, see record_future.pxd
    cdef type _future_type

    cpdef void open(self, MemoryRecordsBuilder builder, object delivery) except *
    cpdef void shut(self) except *
    cpdef tuple try_append(
        self, object timestamp_ms, object key, object value, object headers=*
    )

    cdef tuple _exchange(self, MemoryRecordsBuilder builder, object delivery)

    # For who holds the lock: the two as addresses, NULL for None. And both, for who does not.
    cdef void* builder_address(self) noexcept nogil
    cdef void* delivery_address(self) noexcept nogil
    cdef tuple now_open(self)


cpdef tuple write_first(
    type future_type,
    MemoryRecordsBuilder builder,
    object delivery,
    object timestamp_ms,
    object key,
    object value,
    object headers=*,
)


cdef inline void fetch_early(OpenBatch batch) noexcept nogil:
    """Ask for all that an append touches at once: with thousands of partitions in use nothing of it
    is in a cache, and each thing is found by way of the one before."""
    kprod_prefetch_to_write(batch._tail)
    kprod_prefetch_to_write(batch._tail + CACHE_LINE)
    kprod_prefetch_to_write(<char*><void*>batch._builder)
    kprod_prefetch_to_write(<char*><void*>batch._builder + CACHE_LINE)
    kprod_prefetch_to_write(<char*><void*>batch._builder + 2 * CACHE_LINE)
    kprod_prefetch_to_write(<char*><void*>batch._delivery)
    kprod_prefetch(batch._buffer)


cdef inline RecordFuture make_future(
    type kind, bint bare, object delivery, int32_t index, const Record* record
):
    cdef RecordFuture future = new_future(kind, bare, delivery)
    cdef Py_ssize_t header_size = -1 if record.header_count == 0 else 0
    cdef Py_ssize_t i
    for i in range(2 * record.header_count):
        header_size += max(record.headers[i].size, 0)
    # 32 bits are enough: a record that takes more bytes is in no batch.
    future.index = index
    future.timestamp = record.timestamp_ms
    future.key_size = <int32_t>record.key.size
    future.value_size = <int32_t>record.value.size
    future.header_size = <int32_t>header_size
    return future


cdef inline RecordFuture append_record(
    OpenBatch batch, const Record* record, Py_ssize_t* nbytes, bint* full
):
    """A record from memory: its future, or None when it was not taken. nbytes, full are outputs."""
    cdef MemoryRecordsBuilder builder
    cdef object delivery
    cdef int32_t index
    take_lock(&batch._lock)
    fetch_early(batch)
    builder = batch._builder
    delivery = batch._delivery
    if builder is None:
        release_lock(&batch._lock)
        return None
    index = builder.record_count
    nbytes[0] = take_record(builder, record)
    full[0] = is_full(builder)
    batch._buffer = <void*>builder._buffer
    batch._tail = builder._buffer.data + builder._end
    release_lock(&batch._lock)
    if nbytes[0] <= 0:
        if nbytes[0] == REFUSED:
            builder.refuse(record)
        return None
    return make_future(batch._future_type, batch._bare, delivery, index, record)
