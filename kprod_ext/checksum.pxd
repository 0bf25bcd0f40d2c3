from libc.stdint cimport uint32_t

# CRC-32C of memory that stays as it is meanwhile. Holds the GIL unless it would take long.
cdef uint32_t checksum(const char* data, Py_ssize_t size) except? 0
