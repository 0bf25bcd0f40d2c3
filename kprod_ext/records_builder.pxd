cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.record_layout cimport Record


@cython.final
@cython.no_gc           # refers to a buffer and its pool, neither of which refers to it
cdef class MemoryRecordsBuilder:
    cdef PooledBuffer _buffer
    cdef Py_ssize_t _first_capacity     # of the buffer, before it grew
    cdef BufferPool _pool               # None: the buffer may not grow
    cdef Py_ssize_t _write_limit
    cdef Py_ssize_t _end                # where the next record goes, or where the batch ends
    cdef double _expansion              # estimated compressed bytes per uncompressed byte

    cdef readonly int compression
    cdef readonly int32_t record_count
    cdef readonly Py_ssize_t uncompressed_bytes
    cdef readonly Py_ssize_t max_record_size
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly double actual_compression_ratio
    cdef readonly bint closed_for_append
    cdef readonly bint is_closed

    cdef int32_t _last_offset           # -1: none
    cdef int64_t _producer_id
    cdef int16_t _producer_epoch
    cdef int32_t _base_sequence
    cdef bint _transactional

    cpdef void close_for_append(self) noexcept
    cpdef void set_producer_state(
        self,
        int64_t producer_id,
        int16_t producer_epoch,
        int32_t base_sequence,
        bint transactional=*,
    ) except *
    cpdef void close(self, object compress=*) except *
    cpdef void reopen_producer_state(
        self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence
    ) except *
    cpdef object build(self)

    # For compiled callers: a record straight from memory. Bytes it takes, 0 when there is no room.
    # take returns -1 for a record that try_append_record would raise for.
    cdef Py_ssize_t try_append_record(self, const Record* record) except -1
    cdef Py_ssize_t take(self, const Record* record) noexcept nogil
    cdef bint full(self) noexcept nogil

    cdef Py_ssize_t _append(self, int64_t offset, const Record* record) except -1
    cdef Py_ssize_t _body_size(self, int64_t offset, const Record* record) except -1
    cdef Py_ssize_t _estimated(self) noexcept nogil
    cdef bint _within_limit(self, Py_ssize_t size) noexcept nogil
    cdef bint _make_room(self, Py_ssize_t size) noexcept nogil
    cdef Py_ssize_t _put(
        self, int64_t offset, const Record* record, Py_ssize_t body
    ) noexcept nogil
    cdef int _compress(self, object compress) except -1
    cdef int _give_up_excess(self) except -1
    cdef int _seal(self) except -1
    cdef int _check_usable(self) except -1
