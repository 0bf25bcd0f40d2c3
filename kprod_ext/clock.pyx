# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The machine's time, which tests cannot freeze.

freezegun and time-machine replace Python's functions. A producer that used those would wait for
ever, and a broker would refuse records because their time differs from the frozen one.
"""

cdef extern from *:
    """
    #include <time.h>
    static double kprod_monotonic(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }
    static long long kprod_wall_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    double kprod_monotonic() noexcept nogil
    long long kprod_wall_ms() noexcept nogil


def monotonic():
    """See the stub."""
    return kprod_monotonic()


def wall_ms():
    """See the stub."""
    return kprod_wall_ms()
