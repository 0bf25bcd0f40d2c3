"""Nanoseconds on the clock that never jumps."""

cdef extern from *:
    """
    #include <time.h>
    static long long kprod_nanoseconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    long long kprod_nanoseconds() noexcept nogil
