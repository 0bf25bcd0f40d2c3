"""Zigzag varints, the integers inside a record (as in Protocol Buffers; Kafka's ``ByteUtils``).

The sign moves to bit 0, then seven bits per byte, lowest group first, bit 7 set on all but the
last. One 64-bit form serves both widths: an int32 sign-extended to int64 encodes identically.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t


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
