"""Copying what a record has: without a call where that would cost more than the copying."""

cdef extern from *:
    """
    #include <string.h>

    /* Copies of a fixed size are a few instructions; the second of a pair overlaps the first. */
    static inline void kprod_copy(char *to, const char *from, size_t size) {
        if (size > 128) {
            memcpy(to, from, size);
        } else if (size > 64) {
            memcpy(to, from, 64);
            memcpy(to + size - 64, from + size - 64, 64);
        } else if (size > 32) {
            memcpy(to, from, 32);
            memcpy(to + size - 32, from + size - 32, 32);
        } else if (size >= 16) {
            memcpy(to, from, 16);
            memcpy(to + size - 16, from + size - 16, 16);
        } else if (size >= 8) {
            memcpy(to, from, 8);
            memcpy(to + size - 8, from + size - 8, 8);
        } else if (size >= 4) {
            memcpy(to, from, 4);
            memcpy(to + size - 4, from + size - 4, 4);
        } else if (size > 0) {
            to[0] = from[0];
            to[size / 2] = from[size / 2];
            to[size - 1] = from[size - 1];
        }
    }
    """
    void kprod_copy(char* to, const char* source, size_t size) noexcept nogil
