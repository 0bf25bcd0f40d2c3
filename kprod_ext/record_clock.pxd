cimport cython
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <time.h>
    /* A record's time is in milliseconds, and a send takes less than 200 ns. The exact clock takes
       28 ns of them, the coarse one, which is as old as the last tick of the system, 7 ns. */
    #if defined(CLOCK_REALTIME_COARSE) && !defined(KPROD_PORTABLE)
    #define KPROD_CLOCK CLOCK_REALTIME_COARSE
    #else
    #define KPROD_CLOCK CLOCK_REALTIME
    #endif
    #define KPROD_LONGEST_HOLD_MS 60000

    static inline long long kprod_system_ms(void) {
        struct timespec now;
        clock_gettime(KPROD_CLOCK, &now);
        return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }

    /* The later of the two, which is then the latest; but a step back of more than the longest
       hold is followed. Threads with and without the GIL call this at once. */
    static inline long long kprod_hold(int64_t *latest, long long now) {
        int64_t before = __atomic_load_n(latest, __ATOMIC_RELAXED);
        while (now > before || before - now > KPROD_LONGEST_HOLD_MS) {
            if (__atomic_compare_exchange_n(
                    latest, &before, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
                return now;
            }
        }
        return before;
    }
    """
    int64_t kprod_system_ms() noexcept nogil
    int64_t kprod_hold(int64_t* latest, int64_t now) noexcept nogil


@cython.final
@cython.no_gc_clear         # the source is needed as long as there is a clock
cdef class RecordClock:
    cdef object _source     # None: the system's clock
    cdef int64_t _latest    # what was told last

    cdef int64_t now(self) noexcept
    cdef int64_t ask_source(self) except? -1


@cython.nonecheck(False)
cdef inline int64_t now_without_gil(RecordClock clock) noexcept nogil:
    """The time; a source, which is Python code, is not asked: the time is what it said last."""
    if <void*>clock._source != <void*>None:
        return clock._latest
    return kprod_hold(&clock._latest, kprod_system_ms())


@cython.nonecheck(False)
cdef inline int64_t now_with_gil(RecordClock clock) noexcept:
    """The time, also of a source. For each record, so without a call where there is no source."""
    if <void*>clock._source != <void*>None:
        return clock.now()
    return kprod_hold(&clock._latest, kprod_system_ms())
