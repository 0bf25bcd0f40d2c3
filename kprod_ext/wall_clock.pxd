"""The time of day in milliseconds, as cheaply as the system tells it."""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <time.h>
    #ifdef CLOCK_REALTIME_COARSE
    #define KPROD_CLOCK CLOCK_REALTIME_COARSE
    #else
    #define KPROD_CLOCK CLOCK_REALTIME
    #endif
    static long long kprod_wall_ms(void) {
        struct timespec now;
        clock_gettime(KPROD_CLOCK, &now);
        return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    int64_t kprod_wall_ms() noexcept nogil
