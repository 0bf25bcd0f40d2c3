"""A record of a v2 batch as bytes: varints, layout, header, fields borrowed from Python, its time.

Everything here is inlined into the modules that write records; ``record.pyx`` has it for Python.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.number cimport PyNumber_Index
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

# Zigzag varints, the integers inside a record (as in Protocol Buffers; Kafka's ``ByteUtils``).
#
# The sign moves to bit 0, then seven bits per byte, lowest group first, bit 7 set on all but the
# last. One 64-bit form serves both widths: an int32 sign-extended to int64 encodes identically.

cdef extern from *:
    """
    #if defined(__GNUC__)
      #define kprod_bit_length(bits) ((63 ^ __builtin_clzll((unsigned long long)(bits) | 1ULL)) + 1)
    #else
      static int kprod_bit_length(unsigned long long bits) {
          int length = 1;
          while (bits >>= 1) length++;
          return length;
      }
    #endif
    """
    int kprod_bit_length(uint64_t bits) noexcept nogil    # of at least 1, also for zero


@cython.overflowcheck(False)     # it wraps, by design
cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (<uint64_t>0 - (<uint64_t>value >> 63))


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    """Bytes that put_varint writes for value: 1 to 10."""
    # A seventh of the bits, rounded up. 9/64 says the same up to 64 bits, without a division.
    return <Py_ssize_t>((<unsigned int>kprod_bit_length(zigzag(value)) * 9 + 64) >> 6)


cdef inline char* put_varint(char* out, int64_t value) noexcept nogil:
    """Write value at out and return the position after it."""
    cdef uint64_t rest = zigzag(value)
    while rest > 0x7F:
        out[0] = <char>(0x80 | (rest & 0x7F))
        out += 1
        rest >>= 7
    out[0] = <char>rest
    return out + 1


# Big-endian stores and loads. Each store writes one integer at ``out``, and returns where it ends.
#
# Written byte by byte: the compiler merges the stores into one swap and one move, and the
# target needs no alignment.

cdef inline char* put_int16(char* out, int16_t value) noexcept nogil:
    cdef uint16_t bits = <uint16_t>value
    out[0] = <char>(bits >> 8)
    out[1] = <char>bits
    return out + 2


cdef inline char* put_uint32(char* out, uint32_t bits) noexcept nogil:
    out[0] = <char>(bits >> 24)
    out[1] = <char>(bits >> 16)
    out[2] = <char>(bits >> 8)
    out[3] = <char>bits
    return out + 4


cdef inline char* put_int32(char* out, int32_t value) noexcept nogil:
    return put_uint32(out, <uint32_t>value)


cdef inline char* put_int64(char* out, int64_t value) noexcept nogil:
    cdef uint64_t bits = <uint64_t>value
    put_uint32(out, <uint32_t>(bits >> 32))
    return put_uint32(out + 4, <uint32_t>bits)


cdef inline uint32_t get_uint32(const unsigned char* data) noexcept nogil:
    return (
        (<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3]
    )


cdef inline int16_t get_int16(const unsigned char* data) noexcept nogil:
    return <int16_t>((<uint16_t>data[0] << 8) | data[1])


cdef inline int32_t get_int32(const unsigned char* data) noexcept nogil:
    return <int32_t>get_uint32(data)


cdef inline int64_t get_int64(const unsigned char* data) noexcept nogil:
    return <int64_t>((<uint64_t>get_uint32(data) << 32) | get_uint32(data + 4))


# Asking for memory before it is written, where the compiler can say so.

cdef enum:
    CACHE_LINE = 64         # bytes, as good as everywhere; a wrong guess costs time only


cdef extern from *:
    """
    #if defined(__GNUC__)
      #define kprod_prefetch_to_write(address) __builtin_prefetch(address, 1)
    #else
      #define kprod_prefetch_to_write(address) (void)(address)
    #endif
    """
    void kprod_prefetch_to_write(const void* address) noexcept nogil


# The 61 bytes in front of a v2 batch's records, all big-endian (``DefaultRecordBatch`` in Kafka).
#
#     offset  bytes  field
#          0      8  base offset: 0, the broker writes the real one
#          8      4  bytes after this field
#         12      4  partition leader epoch: -1, the broker writes the real one
#         16      1  magic: 2
#         17      4  CRC-32C of everything from 21 on
#         21      2  attributes: bits 0-2 codec, bit 4 transactional
#         23      4  last offset delta
#         27      8  base timestamp: the first record's, ms
#         35      8  largest timestamp, ms
#         43      8  producer id, -1 for none
#         51      2  producer epoch, -1 for none
#         53      4  base sequence, -1 for none
#         57      4  number of records
#         61         the records

cdef enum:
    BATCH_LENGTH_END = 12
    CRC_AT = 17
    CRC_START = 21
    HEADER_SIZE = 61
    TRANSACTIONAL_BIT = 0x10


cdef struct BatchHeader:
    int64_t base_offset
    int32_t batch_length
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef inline void put_batch_header(char* out, const BatchHeader* header) noexcept nogil:
    """Write all 61 bytes, the CRC as zero."""
    out = put_int64(out, header.base_offset)
    out = put_int32(out, header.batch_length)
    out = put_int32(out, -1)
    out[0] = 2
    out = put_uint32(out + 1, 0)
    out = put_int16(out, header.attributes)
    out = put_int32(out, header.last_offset_delta)
    out = put_int64(out, header.base_timestamp)
    out = put_int64(out, header.max_timestamp)
    out = put_int64(out, header.producer_id)
    out = put_int16(out, header.producer_epoch)
    out = put_int32(out, header.base_sequence)
    put_int32(out, header.record_count)


cdef inline void put_batch_crc(char* batch, uint32_t crc) noexcept nogil:
    put_uint32(batch + CRC_AT, crc)


cdef inline int check_producer_state(
    int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional
) except -1:
    if producer_id < 0 and transactional:
        raise ValueError("a transactional batch needs a producer id")
    if producer_id >= 0 and (producer_epoch < 0 or base_sequence < 0):
        raise ValueError("a producer id needs an epoch and a base sequence of 0 or more")
    return 0


# One record of a v2 batch: measured once, then written in exactly that many bytes.
#
#     varint length of all that follows
#     int8   attributes, 0
#     varint timestamp delta, against the batch's base timestamp
#     varint offset delta, against the batch's base offset
#     field  key
#     field  value
#     varint number of headers
#     then per header: field key (UTF-8, never null), field value
#
# where a field is a varint length, -1 for null, and that many bytes.

cdef enum:
    RECORD_OVERHEAD = 21    # at most: length 5, attributes 1, timestamp delta 10, offset delta 5
    LENGTHS = 15            # at most: the lengths of key and value 5 each, the number of headers 5
    HEADER_LENGTHS = 10     # at most: the lengths of a header's name and value


cdef extern from *:
    int64_t NO_TIME "INT64_MIN"     # of a record that is stamped when it is written


cdef struct Field:
    const char* data
    Py_ssize_t size             # bytes; -1 is null


cdef struct Record:
    int64_t timestamp_ms
    Field key
    Field value
    const Field* headers        # key, value, key, value ...: twice header_count of them
    Py_ssize_t header_count


cdef inline Py_ssize_t field_size(const Field* field) noexcept nogil:
    return 1 if field.size < 0 else varint_size(field.size) + field.size


cdef inline Py_ssize_t payload_size(const Record* record) noexcept nogil:
    """Bytes of key, value and headers, lengths included; -1 when beyond what int32 can say.

    No sum overflows: a field is refused before it is added, and the count is refused before
    the headers are walked.
    """
    cdef Py_ssize_t size, i
    if record.key.size > INT32_MAX or record.value.size > INT32_MAX:
        return -1
    size = field_size(&record.key) + field_size(&record.value) + varint_size(record.header_count)
    for i in range(2 * record.header_count):
        if record.headers[i].size > INT32_MAX or size > INT32_MAX:
            return -1
        size += field_size(&record.headers[i])
    return size if size <= INT32_MAX else -1


cdef inline Py_ssize_t batch_bound(const Record* record) noexcept nogil:
    """Bytes of a batch with this one record at most, whatever its timestamp and offset.

    As Kafka's ``AbstractRecords.estimateSizeInBytesUpperBound``; -1: the format does not allow it.
    """
    cdef Py_ssize_t payload = payload_size(record)
    return HEADER_SIZE + RECORD_OVERHEAD + payload if payload >= 0 else -1


cdef inline Py_ssize_t surely_within(Py_ssize_t largest) noexcept nogil:
    """Bytes of key, value and headers for which batch_bound is ``largest`` at most.

    HEADER_LENGTHS count for each header besides its name and value.
    """
    return largest - HEADER_SIZE - RECORD_OVERHEAD - LENGTHS


cdef inline Py_ssize_t checked_payload(const Record* record) except -1:
    cdef Py_ssize_t payload = payload_size(record)
    if payload < 0:
        raise ValueError("the record is larger than the format allows (2 GiB)")
    return payload


cdef inline Py_ssize_t body_size(
    Py_ssize_t payload, int64_t timestamp_delta, int64_t offset_delta
) noexcept nogil:
    """Bytes after the record's own length."""
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + payload


cdef inline char* put_field(char* out, const Field* field) noexcept nogil:
    out = put_varint(out, field.size)
    if field.size > 0:          # an empty field may have no address
        memcpy(out, field.data, <size_t>field.size)
        out += field.size
    return out


cdef inline char* put_record(
    char* out,
    const Record* record,
    Py_ssize_t body,
    int64_t timestamp_delta,
    int64_t offset_delta,
) noexcept nogil:
    """Write the record at out and return the position after it; body is from body_size."""
    cdef Py_ssize_t i
    out = put_varint(out, body)
    out[0] = 0
    out = put_varint(out + 1, timestamp_delta)
    out = put_varint(out, offset_delta)
    out = put_field(out, &record.key)
    out = put_field(out, &record.value)
    out = put_varint(out, record.header_count)
    for i in range(2 * record.header_count):
        out = put_field(out, &record.headers[i])
    return out


# MurmurHash2, 32 bit, with the seed Kafka's default partitioner uses (``Utils.murmur2``).
#
# Algorithm by Austin Appleby, public domain. Words are read as little-endian on every machine.

cdef enum:
    _SEED = 0x9747B28C
    _MIX = 0x5BD1E995
    _POSITIVE = 0x7FFFFFFF      # ``Utils.toPositive``


@cython.overflowcheck(False)     # it wraps, by design
cdef inline uint32_t murmur2_hash(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Hash size bytes at data; data may be NULL when size is 0."""
    cdef uint32_t mix = <uint32_t>_MIX
    cdef uint32_t state = <uint32_t>_SEED ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = (
            <uint32_t>data[0] | (<uint32_t>data[1] << 8)
            | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24)
        )
        word *= mix
        word ^= word >> 24
        word *= mix
        state = (state * mix) ^ word
        data += 4
        size -= 4
    if size == 3:
        state ^= <uint32_t>data[2] << 16
    if size >= 2:
        state ^= <uint32_t>data[1] << 8
    if size >= 1:
        state ^= <uint32_t>data[0]
        state *= mix
    state ^= state >> 13
    state *= mix
    return state ^ (state >> 15)


@cython.cdivision(True)          # by 1 or more
cdef inline Py_ssize_t partition_of_key(
    const char* key, Py_ssize_t size, Py_ssize_t partitions
) noexcept nogil:
    """The partition of a key (``BuiltInPartitioner.partitionForKey``)."""
    # 32 bits, as they are divided in half the time that 64 take.
    return <Py_ssize_t>(
        (murmur2_hash(<const unsigned char*>key, size) & <uint32_t>_POSITIVE)
        % <uint32_t>partitions
    )


# A record's bytes, borrowed from Python objects for the time of one append.
#
# Exact ``bytes`` cannot change and are alive as long as the caller's arguments: their address is
# enough. Anything else lends its memory through the buffer protocol, and has it back as soon as the
# record is written. Nothing is measured before everything is held, so no size can change between
# measuring and writing.

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    HEADERS_ON_STACK = 8        # more than most records carry; the rest goes to the heap


cdef struct HeldField:
    Py_buffer view
    bint viewed


cdef struct HeldRecord:
    Record record
    HeldField key
    HeldField value
    Field* headers_on_heap
    Field[2 * HEADERS_ON_STACK] headers_on_stack


cdef inline int64_t whole_number(object number) except? -1:
    """number as 64 bits. A float is a TypeError here, where Cython would cut it off in silence."""
    return number if PyLong_CheckExact(number) else PyNumber_Index(number)


cdef inline int hold_field(HeldField* held, Field* field, object data) except -1:
    """Borrow data: None or a C-contiguous buffer. Raises TypeError, BufferError, ValueError."""
    if data is None:
        field.data = NULL
        field.size = -1
    elif PyBytes_CheckExact(data):
        field.data = PyBytes_AS_STRING(data)
        field.size = PyBytes_GET_SIZE(data)
    else:
        PyObject_GetBuffer(data, &held.view, PyBUF_SIMPLE)
        held.viewed = True
        field.data = <const char*>held.view.buf
        field.size = held.view.len
    return 0


cdef inline int64_t timestamp_of(object number) noexcept:
    """A record's time, from 0 to 2**63 - 1 ms; -1 for all but an exact ``int`` in that range."""
    cdef int overflow = 0
    cdef int64_t value
    if not PyLong_CheckExact(number):
        return -1
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return value if overflow == 0 and value >= 0 else -1


cdef inline int32_t partition_of(object number) noexcept:
    """A partition, from 0 to 2**31 - 1; -1 for all but an exact ``int`` in that range."""
    cdef int64_t value = timestamp_of(number)
    return <int32_t>value if value <= INT32_MAX else -1


cdef inline bint is_name(object name) noexcept:
    """Whether a header can have that name: it is text that UTF-8 can say."""
    if type(name) is not str:
        return False
    try:
        return PyUnicode_AsUTF8AndSize(name, NULL) != NULL
    except UnicodeEncodeError:
        return False


cdef inline bint are_frozen(tuple headers) noexcept:
    """Whether each is a tuple of (str, bytes or None): no thread can change borrowed bytes."""
    for header in headers:
        if type(header) is not tuple or len(<tuple>header) != 2:
            return False
        if not is_name((<tuple>header)[0]):
            return False
        if (<tuple>header)[1] is not None and type((<tuple>header)[1]) is not bytes:
            return False
    return True


cdef inline tuple frozen_headers(object headers):
    """Headers as a tuple. Raises TypeError for any that could change while they are borrowed."""
    cdef tuple frozen = tuple(headers)
    if not are_frozen(frozen):
        raise TypeError("headers must be (str, bytes or None) tuples, the names valid UTF-8")
    return frozen


cdef inline int hold_headers(HeldRecord* held, tuple headers) except -1:
    """Borrow the bytes of frozen headers. Raises MemoryError."""
    cdef Py_ssize_t count = len(headers)
    cdef Field* fields = held.headers_on_stack
    cdef Py_ssize_t i
    cdef tuple header
    if count > HEADERS_ON_STACK:
        fields = <Field*>PyMem_Malloc(<size_t>count * 2 * sizeof(Field))
        if fields == NULL:
            raise MemoryError(f"no memory for {count} headers")
        held.headers_on_heap = fields
    for i in range(count):
        header = <tuple>headers[i]
        fields[2 * i].data = PyUnicode_AsUTF8AndSize(header[0], &fields[2 * i].size)
        hold_field(NULL, &fields[2 * i + 1], header[1])     # bytes or None: no view to keep
    held.record.headers = fields
    held.record.header_count = count
    return 0


cdef inline void release_record(HeldRecord* held) noexcept:
    if held.key.viewed:
        PyBuffer_Release(&held.key.view)
    if held.value.viewed:
        PyBuffer_Release(&held.value.view)
    if held.headers_on_heap != NULL:
        PyMem_Free(held.headers_on_heap)


cdef inline int hold_record(
    HeldRecord* held, object timestamp_ms, object key, object value, tuple headers
) except -1:
    """Borrow a record's bytes; release_record must follow, unless this raised.

    The caller keeps key, value and the frozen headers alive until then.
    """
    held.key.viewed = held.value.viewed = False
    held.headers_on_heap = NULL
    held.record.timestamp_ms = whole_number(timestamp_ms)
    try:
        hold_field(&held.key, &held.record.key, key)
        hold_field(&held.value, &held.record.value, value)
        hold_headers(held, headers)
    except BaseException:
        release_record(held)
        raise
    return 0


# The time of records that were sent without one.

cdef extern from *:
    """
    #include <time.h>
    /* A record's time is in milliseconds, and a send takes less than 200 ns. The exact clock takes
       28 ns of them, the coarse one, which is as old as the last tick of the system, 7 ns. */
    #if defined(CLOCK_REALTIME_COARSE) && !defined(KPROD_PORTABLE)
    #define KPROD_CLOCK CLOCK_REALTIME_COARSE
    #else
    #define KPROD_CLOCK CLOCK_REALTIME
    #endif
    #define KPROD_LONGEST_HOLD_MS 60000

    static inline long long kprod_system_ms(void) {
        struct timespec now;
        clock_gettime(KPROD_CLOCK, &now);
        return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }

    /* The later of the two, which is then the latest; but a step back of more than the longest
       hold is followed. Threads with and without the GIL call this at once. Relaxed: the number
       is all that is shared, and every change of it is one exchange. */
    static inline long long kprod_hold(int64_t *latest, long long now) {
        int64_t before = __atomic_load_n(latest, __ATOMIC_RELAXED);
        while (now > before || before - now > KPROD_LONGEST_HOLD_MS) {
            if (__atomic_compare_exchange_n(
                    latest, &before, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
                return now;
            }
        }
        return before;
    }
    """
    int64_t kprod_system_ms() noexcept nogil
    int64_t kprod_hold(int64_t* latest, int64_t now) noexcept nogil


@cython.final
@cython.no_gc_clear         # the clock needs its source until it is freed
cdef class RecordClock:
    cdef object _source     # None: the system's clock
    cdef int64_t _latest    # the latest time returned

    cdef int64_t now(self) noexcept
    cdef int64_t ask_source(self) except? -1


@cython.nonecheck(False)
cdef inline int64_t now_without_gil(RecordClock clock) noexcept nogil:
    """The time. With a source, which is Python code, the latest time that it returned."""
    if <void*>clock._source != <void*>None:
        return clock._latest
    return kprod_hold(&clock._latest, kprod_system_ms())


@cython.nonecheck(False)
cdef inline int64_t now_with_gil(RecordClock clock) noexcept:
    """The time, also of a source. Inline without one, as each record needs it."""
    if <void*>clock._source != <void*>None:
        return clock.now()
    return kprod_hold(&clock._latest, kprod_system_ms())
