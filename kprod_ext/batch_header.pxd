"""The 61 bytes in front of a v2 batch's records, all big-endian (``DefaultRecordBatch`` in Kafka).

    offset  bytes  field
         0      8  base offset: 0, the broker writes the real one
         8      4  bytes after this field
        12      4  partition leader epoch: -1, the broker writes the real one
        16      1  magic: 2
        17      4  CRC-32C of everything from 21 on
        21      2  attributes: bits 0-2 codec, bit 4 transactional
        23      4  last offset delta
        27      8  base timestamp: the first record's, ms
        35      8  largest timestamp, ms
        43      8  producer id, -1 for none
        51      2  producer epoch, -1 for none
        53      4  base sequence, -1 for none
        57      4  number of records
        61         the records
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kprod_ext.endian cimport put_int16, put_int32, put_int64, put_uint32

cdef enum:
    BATCH_LENGTH_END = 12
    CRC_AT = 17
    CRC_START = 21
    HEADER_SIZE = 61
    TRANSACTIONAL_BIT = 0x10


cdef struct BatchHeader:
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
    out = put_int64(out, 0)
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
