# cython: language_level=3, auto_pickle=False, autotestdict=False
"""One batch: its records, the header in front of them, and its bytes on the way to the socket.

After ``org.apache.kafka.common.record.MemoryRecordsBuilder``, for magic 2. Its stages: open;
closed for append (no more records, header not written); closed (the batch is complete).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memmove

from kprod_ext.buffer_pool cimport BufferPool, Chunk, PooledBuffer, chunk_data, chunk_size
from kprod_ext.checksum cimport checksum, checksum_onwards, joined
from kprod_ext.futures cimport track, untrack
from kprod_ext.record cimport (
    BATCH_LENGTH_END,
    BatchHeader,
    CRC_START,
    HEADER_SIZE,
    HeldRecord,
    RECORD_OVERHEAD as LAID_OUT_OVERHEAD,
    Record,
    TRANSACTIONAL_BIT,
    batch_bound,
    body_size,
    check_producer_state,
    checked_payload,
    frozen_headers,
    hold_record,
    put_batch_crc,
    put_batch_header,
    release_record,
    varint_size,
)

HEADER_BYTES = HEADER_SIZE
RECORD_OVERHEAD = LAID_OUT_OVERHEAD

cdef enum:
    LAST_CODEC = 4      # zstd
    NO_SEQUENCE = -1

cdef double ESTIMATION_MARGIN = 1.05    # COMPRESSION_RATE_ESTIMATION_FACTOR
cdef double LARGEST_RATIO = 1e6         # with it, the estimate is still an exact integer


cpdef Py_ssize_t batch_size_upper_bound(
    object key, object value, object headers=()
) except -1:
    """Bytes a batch with this one record can take at most, whatever its timestamp and offset."""
    cdef HeldRecord held
    cdef tuple frozen = frozen_headers(headers)
    hold_record(&held, 0, key, value, frozen)
    try:
        checked_payload(&held.record)
        return batch_bound(&held.record)
    finally:
        release_record(&held)


@cython.no_gc           # refers to a buffer and its pool, neither of which refers to it
cdef class MemoryRecordsBuilder:
    """Writes one record batch into a pooled buffer."""

    def __cinit__(
        self,
        PooledBuffer buffer not None,
        *of_a_subclass,
        Py_ssize_t write_limit,
        int compression=0,
        double compression_ratio=1.0,
        BufferPool pool=None,
        object full_size=None,
    ):
        if of_a_subclass and type(self) is MemoryRecordsBuilder:
            raise TypeError("a builder takes a buffer; everything else is named")
        if not NO_COMPRESSION <= compression <= LAST_CODEC:
            raise ValueError(f"compression must be 0 to {LAST_CODEC}, got {compression}")
        if not 0 < compression_ratio <= LARGEST_RATIO:
            raise ValueError(f"compression_ratio must be above 0 to 1e6, got {compression_ratio}")
        if pool is not None and buffer.pool is not pool:
            raise ValueError("the buffer is not from this pool")
        if buffer.capacity < HEADER_SIZE:
            raise ValueError(f"a batch needs at least {HEADER_SIZE} bytes, not {buffer.capacity}")
        self._buffer = buffer
        self._first_capacity = buffer.capacity
        self._pool = pool
        self._memory_end = buffer.capacity
        self._write_limit = write_limit
        self._full_size = write_limit if full_size is None else min(full_size, write_limit)
        self._expansion = compression_ratio * ESTIMATION_MARGIN
        self.compression = compression
        self.actual_compression_ratio = 1.0
        self._producer_id = -1
        self._producer_epoch = -1
        self._base_sequence = -1
        self._check_usable()
        self._tail = &self._own
        clear_tail(self._tail)
        self._tail.builder = <void*>self
        self._tail.data = buffer.data
        self._tail.end = HEADER_SIZE
        set_room(self)

    def has_room_for(self, timestamp_ms, key, value, headers=()):
        """Whether try_append would take the record."""
        cdef HeldRecord held
        cdef Py_ssize_t body, size, end
        cdef int64_t offset = <int64_t>self._tail.last_offset + 1
        cdef tuple frozen = frozen_headers(headers)
        hold_record(&held, timestamp_ms, key, value, frozen)
        try:
            body = self._body_size(offset, &held.record)
        finally:
            release_record(&held)
        self._check_usable()
        size = varint_size(body) + body
        if not has_room_for(self, offset, size):
            return False
        end = self._tail.end + size
        if end <= self._memory_end or end > INT32_MAX:
            return end <= INT32_MAX
        if is_growing(self):
            end = self._buffer.capacity + chunk_size(self._pool, size)
        elif self._tail.record_count > 0:
            if self._pool is None or self.compression == NO_COMPRESSION:
                return False
        return self._buffer.pool.can_grow(self._buffer, end)

    def try_append(self, timestamp_ms, key, value, headers=()):
        """Append a record if it fits the limit, else close for append. Bytes it takes, or 0."""
        cdef HeldRecord held
        cdef tuple frozen = frozen_headers(headers)
        hold_record(&held, timestamp_ms, key, value, frozen)
        try:
            return self.try_append_record(&held.record)
        finally:
            release_record(&held)

    def append(self, timestamp_ms, key, value, headers=()):
        """Append a record without regard to the limit. Bytes it takes."""
        cdef HeldRecord held
        cdef tuple frozen = frozen_headers(headers)
        hold_record(&held, timestamp_ms, key, value, frozen)
        try:
            return self._append(&held.record)
        finally:
            release_record(&held)

    cpdef void close_for_append(self) noexcept:
        """Take no more records; the header is still to be written."""
        self.closed_for_append = True
        self._tail.room = 0

    cpdef void set_producer_state(
        self,
        int64_t producer_id,
        int16_t producer_epoch,
        int32_t base_sequence,
        bint transactional=False,
    ) except *:
        """Set producer id, epoch and base sequence, before close."""
        if self.is_closed:
            raise RuntimeError("the batch is closed; use reopen_producer_state")
        check_producer_state(producer_id, producer_epoch, base_sequence, transactional)
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._transactional = transactional

    cpdef void compress(self, object compress=None) except *:
        """Close for append, and compress the records if they are to be."""
        if self._has_to_compress():
            if compress is None:
                raise ValueError("a compressed batch needs a function that compresses it")
            records = self._records()       # if the batch ends meanwhile, its memory stays
            self._become(compress(records))
            del records                     # without a view of it, it can be cut down
            self._give_up_excess()

    cpdef void close(self, object compress=None) except *:
        """Compress the records if asked to and write the header."""
        if self.is_closed:
            return
        self._check_usable()
        self.compress(compress)
        if self._tail.record_count > 0:
            self._seal()
        self.is_closed = True

    cpdef void reopen_producer_state(
        self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence
    ) except *:
        """Write another producer state into the header of a closed batch, and its CRC."""
        if not self.is_closed:
            raise RuntimeError("the batch is not closed; use set_producer_state")
        self._check_usable()
        if self._buffer.lent != 0:
            raise BufferError("the batch is frozen while a view of it is out")
        check_producer_state(producer_id, producer_epoch, base_sequence, self._transactional)
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        if self._tail.record_count > 0:
            self._seal()

    cpdef object build(self):
        """The whole batch, read-only."""
        if not self.is_closed:
            raise RuntimeError("the batch is not closed")
        if self._tail.record_count == 0:
            return memoryview(b"")
        whole = memoryview(self._buffer)
        if self._buffer.chunks != NULL:
            return memoryview(self.copied())
        whole = whole[:self._tail.end].toreadonly()
        self.finish_checksum()
        return whole

    cdef bytes copied(self):
        """A copy of the whole closed batch, in a row."""
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, self._tail.end)
        cdef char* out = PyBytes_AS_STRING(whole) + self._first_used
        cdef Chunk* chunk = self._buffer.chunks
        self.finish_checksum()
        memcpy(PyBytes_AS_STRING(whole), self._buffer.data, <size_t>self._first_used)
        while chunk != NULL:
            memcpy(out, chunk_data(chunk), <size_t>chunk.used)
            out += chunk.used
            chunk = chunk.next
        return whole

    @property
    def record_count(self):
        return seen_count(self)

    @property
    def uncompressed_bytes(self):
        return uncompressed_size(self)

    @property
    def max_record_size(self):
        return self._tail.max_record_size

    @property
    def base_timestamp(self):
        return self._tail.base_timestamp

    @property
    def max_timestamp(self):
        return self._tail.max_timestamp

    @property
    def is_full(self):
        return seen_full(self)

    @property
    def estimated_bytes_written(self):
        return seen_bytes(self)

    cdef Py_ssize_t try_append_record(self, const Record* record) except -1:
        cdef Py_ssize_t size = take_record(self, record)
        if size == REFUSED:
            self.refuse(record)
        return size

    cdef int refuse(self, const Record* record) except -1:
        self._body_size(<int64_t>self._tail.last_offset + 1, record)
        self._check_usable()
        raise SystemError("a record took other than the bytes it was measured to take")

    cdef Py_ssize_t _append(self, const Record* record) except -1:
        cdef Py_ssize_t body, size
        cdef int64_t offset = <int64_t>self._tail.last_offset + 1
        body = self._body_size(offset, record)
        size = varint_size(body) + body
        if self.closed_for_append:
            raise ValueError("the batch takes no more records")
        self._check_usable()
        if not has_memory(self, size):
            raise ValueError(f"no room for a record of {size} bytes in the buffer")
        if not put_next(self._tail, offset, record, body, size):
            raise SystemError("a record took other than the bytes it was measured to take")
        return size

    cdef Py_ssize_t _body_size(self, int64_t offset, const Record* record) except -1:
        cdef Py_ssize_t body
        cdef int64_t delta = 0
        if record.timestamp_ms < 0:
            raise ValueError(f"timestamp_ms must not be negative, got {record.timestamp_ms}")
        if self._tail.record_count > 0:
            delta = record.timestamp_ms - self._tail.base_timestamp
        body = body_size(checked_payload(record), delta, offset)
        if body > INT32_MAX:
            raise ValueError("the record is larger than the format allows (2 GiB)")
        return body

    cdef bint _has_to_compress(self) except -1:
        """Close for append; whether the records are still to be compressed."""
        if self.is_compressed or self.is_closed:
            return False
        self._check_usable()
        self.close_for_append()
        self.is_compressed = self._tail.record_count == 0 or self.compression == NO_COMPRESSION
        return not self.is_compressed

    cdef object _records(self):
        """While this view is out the memory stays, even if the batch is given up meanwhile."""
        return memoryview(self._buffer)[HEADER_SIZE:self._tail.end].toreadonly()

    cdef int _become(self, object compressed) except -1:
        """Replace the records by their compressed form, if that is smaller."""
        cdef Py_ssize_t size = uncompressed_size(self)
        cdef Py_buffer packed
        PyObject_GetBuffer(compressed, &packed, PyBUF_SIMPLE)
        try:
            self.actual_compression_ratio = <double>packed.len / <double>size
            if packed.len < size:
                memmove(self._buffer.data + HEADER_SIZE, packed.buf, <size_t>packed.len)
                self._tail.end = <int32_t>(HEADER_SIZE + packed.len)
                self._saved = size - packed.len
            else:
                # What would grow is sent as it is, as librdkafka does. So the result always fits.
                self.compression = NO_COMPRESSION
        finally:
            PyBuffer_Release(&packed)
        self.is_compressed = True
        return 0

    cdef int _give_up_excess(self) except -1:
        """The records are smaller now; others may want the memory while the batch is under way."""
        if self._pool is not None:
            self._pool.shrink(self._buffer, max(self._first_capacity, <Py_ssize_t>self._tail.end))
            self._tail.data = self._buffer.data
        return 0

    cdef void sum_records(self) noexcept nogil:
        """Begin the checksum with what is certain already: no record comes after these."""
        if (
            self.closed_for_append
            and not self._is_summed
            and self.compression == NO_COMPRESSION
            and not self._buffer.given_back
        ):
            leave_chunk(self)
            self._records_sum = self._sum_from(HEADER_SIZE)
            self._is_summed = True

    cdef void finish_checksum(self) noexcept nogil:
        if self._sum_is_due:
            put_batch_crc(self._buffer.data, self._checksum())
            self._sum_is_due = False

    cdef uint32_t _checksum(self) noexcept nogil:
        if not self._is_summed:
            return self._sum_from(CRC_START)
        return joined(
            checksum(self._buffer.data + CRC_START, HEADER_SIZE - CRC_START),
            self._records_sum,
            self._tail.end - HEADER_SIZE,
        )

    cdef uint32_t _sum_from(self, Py_ssize_t start) noexcept nogil:
        """The checksum of all from ``start`` on, which is not behind the header."""
        cdef uint32_t crc = checksum(self._buffer.data + start, self._first_used - start)
        cdef Chunk* chunk = self._buffer.chunks
        while chunk != NULL:
            crc = checksum_onwards(crc, chunk_data(chunk), chunk.used)
            chunk = chunk.next
        return crc

    cdef int _seal(self) except -1:
        """Write the header; the checksum follows when the batch is first read."""
        cdef BatchHeader header
        cdef int bits = TRANSACTIONAL_BIT if self._transactional else 0
        header.batch_length = self._tail.end - BATCH_LENGTH_END
        header.attributes = <int16_t>(self.compression | bits)
        header.last_offset_delta = self._tail.last_offset
        header.base_timestamp = self._tail.base_timestamp
        header.max_timestamp = self._tail.max_timestamp
        header.producer_id = self._producer_id
        header.producer_epoch = self._producer_epoch
        header.base_sequence = self._base_sequence
        header.record_count = self._tail.record_count
        leave_chunk(self)
        put_batch_header(self._buffer.data, &header)
        self._sum_is_due = True
        return 0

    cdef int _check_usable(self) except -1:
        if self._buffer.given_back:
            raise ValueError("the buffer was given back to its pool")
        return 0


cdef class ProducerBatch(MemoryRecordsBuilder):
    """Records of one partition that travel, are acknowledged and fail together."""

    def __init__(self, PooledBuffer buffer not None, tp, delivery, double now, **_of_the_builder):
        self.tp = tp
        self.delivery = delivery
        self.created_at = self.last_attempt_at = self.retry_at = now
        self.base_sequence = NO_SEQUENCE
        untrack(self)

    @property
    def buffer(self):
        return self._buffer

    @property
    def records(self):
        return SealedBatch(self) if self.is_closed and not self._buffer.given_back else None

    @property
    def size(self):
        return self._tail.end if self.is_closed else seen_bytes(self)

    @property
    def has_sequence(self):
        return self.base_sequence != NO_SEQUENCE

    def give_sequence(self, producer, int32_t base_sequence):
        """Set producer id, epoch and base sequence; a sealed batch gets a new header."""
        if self.is_closed:
            self.reopen_producer_state(producer.producer_id, producer.epoch, base_sequence)
        else:
            self.set_producer_state(
                producer.producer_id, producer.epoch, base_sequence, producer.transactional
            )
        self.producer, self.base_sequence = producer, base_sequence

    def attempt(self, double now, leader):
        """The batch goes out to ``leader``."""
        self.attempts += 1
        self.last_attempt_at = now
        self.attempted_leader = leader
        self.on_wire = True

    def failed(self, error):
        """An attempt ended in ``error``."""
        self.last_error = error
        track(self)

    def release(self):
        """Give the memory back: the batch is off the wire and has its outcome, or was split."""
        self._buffer.pool.deallocate(self._buffer)

    def __repr__(self):
        return (
            f"<ProducerBatch {self.tp} records={self.record_count} attempts={self.attempts}"
            f" sequence={self.base_sequence}>"
        )


@cython.final
@cython.no_gc           # as the builder, which does not refer to this
cdef class SealedBatch:
    """Read-only bytes, as soon as somebody asks for a view of them."""

    def __cinit__(self, MemoryRecordsBuilder builder not None):
        if not builder.is_closed:
            raise RuntimeError("the batch is not closed")
        PyObject_GetBuffer(builder._buffer, &self._lent, PyBUF_SIMPLE)
        self._builder = builder
        self.size = builder._tail.end if builder._tail.record_count > 0 else 0

    def __dealloc__(self):
        PyBuffer_Release(&self._lent)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef bytes copy
        if self.data() != NULL:
            self.finish()
            PyBuffer_FillInfo(view, self, self.data(), self.size, True, flags)
        else:
            copy = self._builder.copied()
            PyBuffer_FillInfo(view, copy, PyBytes_AS_STRING(copy), self.size, True, flags)

    cpdef list pieces(self):
        """The batch itself where it lies in a row, else a piece for each row."""
        cdef list found
        cdef Chunk* chunk = self._builder._buffer.chunks
        if self.data() != NULL:
            return [self]
        found = [piece_of(self, <char*>self._lent.buf, self._builder._first_used)]
        while chunk != NULL:
            found.append(piece_of(self, chunk_data(chunk), chunk.used))
            chunk = chunk.next
        return found

    @cython.nonecheck(False)
    cdef char* data(self) noexcept nogil:
        if self._builder._buffer.chunks != NULL and self.size > 0:
            return NULL
        return <char*>self._lent.buf

    @cython.nonecheck(False)
    cdef void finish(self) noexcept nogil:
        self._builder.finish_checksum()


@cython.final
@cython.no_gc           # as the batch, which does not refer to this
cdef class SealedPiece:
    """A part of a closed batch that lies in a row in memory."""

    def __cinit__(self, SealedBatch batch not None):
        self.batch = batch

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        self.batch.finish()
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


cdef SealedPiece piece_of(SealedBatch batch, char* data, Py_ssize_t size):
    cdef SealedPiece piece = SealedPiece.__new__(SealedPiece, batch)
    piece.data, piece.size = data, size
    return piece
