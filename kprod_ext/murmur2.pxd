"""MurmurHash2, 32 bit, with the seed Kafka's default partitioner uses (``Utils.murmur2``).

Algorithm by Austin Appleby, public domain. Words are read as little-endian on every machine.
"""

cimport cython
from libc.stdint cimport uint32_t

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
