"""Big-endian stores and loads. Each store writes one integer at ``out``, and returns where it ends.

Written byte by byte: the compiler merges the stores into one swap and one move, and the
target needs no alignment.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t


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
