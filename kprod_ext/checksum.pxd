from libc.stdint cimport uint32_t

# CRC-32C of memory that stays as it is meanwhile. Holds the GIL unless it would take long.
cdef uint32_t checksum(const char* data, Py_ssize_t size) except? 0

# The same without the interpreter, on a machine where can_sum() is true.
cdef bint can_sum() noexcept nogil
cdef uint32_t sum_of(const char* data, Py_ssize_t size) noexcept nogil

# The checksum of two pieces that follow each other, from those of each.
cdef uint32_t joined(uint32_t first, uint32_t second, Py_ssize_t second_size) noexcept nogil
