# cython: language_level=3, auto_pickle=False, autotestdict=False
"""One batch: its records, and the header in front of them.

After ``org.apache.kafka.common.record.MemoryRecordsBuilder``, for magic 2. Its stages: open;
closed for append (no more records, header not written); closed (the batch is complete).
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t, uintptr_t
from libc.string cimport memmove

from kprod_ext.buffer_pool cimport (
    BufferPool,
    Chunk,
    PooledBuffer,
    chunk_data,
    chunk_size,
    view_of,
)
from kprod_ext.futures cimport track, untrack
from kprod_ext.record cimport (
    BATCH_LENGTH_END,
    BatchHeader,
    CACHE_LINE,
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
from kprod_ext.shared cimport KPROD_HAS_GIL

HEADER_BYTES = HEADER_SIZE
RECORD_OVERHEAD = LAID_OUT_OVERHEAD

cdef enum:
    LAST_CODEC = 4      # zstd
    NO_SEQUENCE = -1
    HOLD_GIL = 0        # of crc32c's gil_release_mode
    POWER_COUNT = 34    # x**8 to the power of any size of a batch

cdef double ESTIMATION_MARGIN = 1.05    # COMPRESSION_RATE_ESTIMATION_FACTOR
cdef double LARGEST_RATIO = 1e6         # with it, the estimate is still an exact integer
cdef object crc32c = None               # of the package: see load_crc32c
cdef uint32_t CRC_POLYNOMIAL = <uint32_t>0x82F63B78
cdef uint32_t[POWER_COUNT] POWERS       # x**(2**i)


cdef int load_crc32c() except -1:
    """Import the package with the first batch: it imports a dozen modules, ``email`` among them.

    A caller creates the first batch. The sender's thread could still import while the interpreter
    shuts down.
    """
    global crc32c
    import crc32c as package
    crc32c = package.crc32c
    return 0


cdef int release_view(object view) except -1:
    try:
        view.release()
    except BufferError:
        pass                # the codec keeps a part of it
    return 0


@cython.final
@cython.no_gc
cdef class _Bytes:
    """Bytes as an argument; the caller keeps them."""

    cdef char* _data
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self._data, self._size, True, flags)


cdef object sum_of(char* data, Py_ssize_t size, object crc):
    """The CRC-32C of bytes with the sum ``crc``, followed by these bytes."""
    cdef _Bytes given = _Bytes.__new__(_Bytes)
    given._data, given._size = data, size
    return crc32c(given, crc, HOLD_GIL)


# A CRC is a remainder of polynomials over GF(2), here with the coefficient of x**0 in the highest
# bit. The CRC of two parts in a row is that of the first one times x**(bits of the second), plus
# that of the second (as zlib's crc32_combine).

cdef uint32_t multiplied(uint32_t one, uint32_t other) noexcept nogil:
    """The product modulo the polynomial of CRC-32C."""
    cdef uint32_t product = 0
    while one:
        if one >> 31:
            product ^= other
        one <<= 1
        other = (other >> 1) ^ (CRC_POLYNOMIAL if other & 1 else 0)
    return product


cdef int fill_powers() except -1:
    cdef int i
    POWERS[0] = 0x40000000      # x
    for i in range(1, POWER_COUNT):
        POWERS[i] = multiplied(POWERS[i - 1], POWERS[i - 1])
    return 0


fill_powers()


cdef uint32_t followed_by_zeros(uint32_t crc, Py_ssize_t size) noexcept nogil:
    """The part of ``crc`` in the CRC of its bytes followed by ``size`` more bytes."""
    cdef int i = 3              # x**8 for the first byte
    while size:
        if size & 1:
            crc = multiplied(POWERS[i], crc)
        size >>= 1
        i += 1
    return crc


cpdef Py_ssize_t batch_size_upper_bound(
    object key, object value, object headers=()
) except -1:
    """Bytes that a batch with this one record takes at most, with any timestamp and offset."""
    cdef HeldRecord held
    cdef tuple frozen = frozen_headers(headers)
    hold_record(&held, 0, key, value, frozen)
    try:
        checked_payload(&held.record)
        return batch_bound(&held.record)
    finally:
        release_record(&held)


@cython.final
@cython.no_gc           # as in the .pxd
cdef class TailMemory:
    """The tail of a partition's queue, kept while a batch that was open there exists."""

    def __cinit__(self):
        self.tail = <BatchTail*>(
            (<uintptr_t>&self._room[0] + CACHE_LINE - 1) & ~<uintptr_t>(CACHE_LINE - 1)
        )
        clear_tail(self.tail)


@cython.no_gc           # as in the .pxd
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
        if crc32c is None:
            load_crc32c()
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
        """Append a record within the limit, else close for append. Returns its bytes, or 0."""
        cdef HeldRecord held
        cdef tuple frozen = frozen_headers(headers)
        hold_record(&held, timestamp_ms, key, value, frozen)
        try:
            return self.try_append_record(&held.record)
        finally:
            release_record(&held)

    def append(self, timestamp_ms, key, value, headers=()):
        """Append a record regardless of the limit. Returns its bytes."""
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
        """Close for append, and compress the records if a codec is set."""
        if self._has_to_compress():
            if compress is None:
                raise ValueError("a compressed batch needs a function that compresses it")
            # The view keeps the memory alive if the batch ends during compression.
            records = self._records()
            try:
                self._become(compress(records))
            finally:
                # No view may be left: shrink and another producer state need that. A log may keep
                # a codec's error, and with it frames that refer to the view.
                release_view(records)
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
        if self._buffer.chunks == NULL:
            return view_of(self._buffer, self._buffer.data, self._tail.end)
        return memoryview(b"".join(self.pieces()))

    cpdef list pieces(self):
        """The whole closed batch as read-only views, in order: one for each chunk of memory."""
        cdef list found = []
        cdef Chunk* chunk = self._buffer.chunks
        if not self.is_closed:
            raise RuntimeError("the batch is not closed")
        if self._tail.record_count > 0:
            found.append(view_of(self._buffer, self._buffer.data, self._first_used))
        while chunk != NULL:
            found.append(view_of(self._buffer, chunk_data(chunk), chunk.used))
            chunk = chunk.next
        return found

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
        cdef int64_t offset = <int64_t>self._tail.last_offset + 1
        cdef Py_ssize_t body, size
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
        """Close for append. Return True if compression remains to be done."""
        if self.is_compressed or self.is_closed:
            return False
        self._check_usable()
        self.close_for_append()
        self.is_compressed = self._tail.record_count == 0 or self.compression == NO_COMPRESSION
        return not self.is_compressed

    cdef object _records(self):
        """A view of the records. It keeps the memory alive, also when the buffer is given back."""
        return view_of(
            self._buffer, self._buffer.data + HEADER_SIZE, self._tail.end - HEADER_SIZE
        )

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
                # Records that compression does not shrink are sent uncompressed, as librdkafka
                # does. So the result always fits.
                self.compression = NO_COMPRESSION
        finally:
            PyBuffer_Release(&packed)
        self.is_compressed = True
        return 0

    cdef int _give_up_excess(self) except -1:
        """Return the memory that compression has freed: other batches may need it."""
        if self._pool is not None:
            self._pool.shrink(self._buffer, max(self._first_capacity, <Py_ssize_t>self._tail.end))
            self._tail.data = self._buffer.data
        return 0

    cdef int sum_early(self) except -1:
        """Sum the records of a batch that is closed for append, if they are in their final form.

        The appender that found no room calls this: it has just written the records, so its
        processor still has them in its cache, unlike the sender's. Without a GIL the sender could
        give the memory back meanwhile, and nobody waits for its processor time.
        """
        if KPROD_HAS_GIL and self.compression == NO_COMPRESSION and not self._buffer.given_back:
            self.sum_records()
        return 0

    cdef int sum_records(self) except -1:
        """Calculate the CRC-32C of the records, once.

        The GIL is held throughout: reacquiring it can take longer than the checksum. Only the
        garbage collector may run Python code in between, and so let the sender send the batch,
        give it another header, and end it; the memory of the records stays.
        """
        cdef Chunk* chunk
        if self._is_summed:
            return 0
        leave_chunk(self)
        chunk = self._buffer.chunks
        self._buffer.readers += 1
        try:
            crc = sum_of(self._buffer.data + HEADER_SIZE, self._first_used - HEADER_SIZE, 0)
            while chunk != NULL:
                crc = sum_of(chunk_data(chunk), chunk.used, crc)
                chunk = chunk.next
        finally:
            self._buffer.readers -= 1
        self._records_crc, self._is_summed = crc, True
        return 0

    cdef uint32_t _checksum(self) except? 0:
        """The CRC-32C of all bytes after its own field."""
        cdef uint32_t header
        self.sum_records()
        header = sum_of(self._buffer.data + CRC_START, HEADER_SIZE - CRC_START, 0)
        return followed_by_zeros(header, self._tail.end - HEADER_SIZE) ^ self._records_crc

    cdef int _seal(self) except -1:
        """Write the header."""
        cdef BatchHeader header
        cdef int bits = TRANSACTIONAL_BIT if self._transactional else 0
        header.base_offset = 0
        header.batch_length = self._tail.end - BATCH_LENGTH_END
        header.attributes = <int16_t>(self.compression | bits)
        header.last_offset_delta = self._tail.last_offset
        header.base_timestamp = self._tail.base_timestamp
        header.max_timestamp = self._tail.max_timestamp
        header.producer_id = self._producer_id
        header.producer_epoch = self._producer_epoch
        header.base_sequence = self._base_sequence
        header.record_count = self._tail.record_count
        put_batch_header(self._buffer.data, &header)
        put_batch_crc(self._buffer.data, self._checksum())
        return 0

    cdef int _check_usable(self) except -1:
        if self._buffer.given_back:
            raise ValueError("the buffer was given back to its pool")
        return 0


cdef class ProducerBatch(MemoryRecordsBuilder):
    """Records of one partition that are sent, acknowledged and failed together."""

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
        return self.pieces() if self.is_closed and not self._buffer.given_back else None

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
        """The batch is sent to ``leader``."""
        self.attempts += 1
        self.last_attempt_at = now
        self.attempted_leader = leader
        self.on_wire = True

    def failed(self, error):
        """An attempt failed with ``error``."""
        self.last_error = error
        track(self)

    def release(self):
        """Return the memory: the batch is not in flight and has its outcome, or was split."""
        self._buffer.pool.deallocate(self._buffer)

    def __repr__(self):
        return (
            f"<ProducerBatch {self.tp} records={self.record_count} attempts={self.attempts}"
            f" sequence={self.base_sequence}>"
        )
