from libc.stdint cimport uint32_t

# The CRC-32C of memory that stays as it is meanwhile.
cdef uint32_t checksum(const char* data, Py_ssize_t size) noexcept nogil

# The same of what comes before, whose CRC-32C is given, and this memory.
cdef uint32_t checksum_onwards(uint32_t crc, const char* data, Py_ssize_t size) noexcept nogil

# The CRC-32C of two pieces that follow each other, from that of each.
cdef uint32_t joined(uint32_t first, uint32_t second, Py_ssize_t second_size) noexcept nogil
