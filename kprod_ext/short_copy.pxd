"""Copying what a record has: without a call where that would cost more than the copying."""

cdef extern from *:
    """
    #include <string.h>

    /* GCC makes "rep movsq" of a memcpy whose size it knows to be bounded, and that takes longer to
       begin than a hundred bytes take to be copied. So it must not know. */
    #if defined(__GNUC__) && !defined(__clang__)
    __attribute__((unused, noipa))
    #elif defined(__clang__)
    __attribute__((unused, noinline))
    #endif
    static void kprod_copy_long(char *to, const char *from, size_t size) {
        memcpy(to, from, size);
    }

    /* Copies of a fixed size are a few instructions; the second of a pair overlaps the first.
       A kilobyte or two that are in no cache take twice as long by the memcpy of the GNU C library:
       it reads the end before the rest, and the processor does not see that it will need the next
       lines. What is larger the library copies in other ways, which are as fast. */
    static inline void kprod_copy(char *to, const char *from, size_t size) {
        if (size > 4096) {
            kprod_copy_long(to, from, size);
        } else if (size > 64) {
            char *end = to + size;
            const char *tail = from + size - 64;
            for (; end - to > 64; to += 64, from += 64) {
                memcpy(to, from, 64);
            }
            memcpy(end - 64, tail, 64);
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
