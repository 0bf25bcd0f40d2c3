# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Where a thread rests while others do its work, and what it gets up for.

Whoever asks for it to get up soon may be about to do the work, and often is: so the thread sleeps
until then, and each time the work was done in the meantime the alarm is put off before it rings. A
caller that sends record after record and waits for each is not disturbed by it at all.

To put off the alarm that rings next is dear: the processor's timer is set anew, which in a virtual
machine may take 40 us. So it is done the more seldom the more often it was done for nothing.
"""

cimport cython
from cpython.exc cimport PyErr_SetFromErrno

from kprod_ext.alarm cimport (
    Alarm,
    kprod_await_alarm,
    kprod_close_alarm,
    kprod_open_alarm,
    kprod_set_alarm,
)
from kprod_ext.monotonic_clock cimport kprod_nanoseconds
from kprod_ext.record_lock cimport RecordLock, release_lock, take_lock

cdef extern from *:
    """
    #include <string.h>
    #define kprod_renew(lock) memset(&(lock), 0, sizeof(lock))
    #define kprod_load(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
    #define kprod_store(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
    #define kprod_swap(place, value) __atomic_exchange_n(&(place), (value), __ATOMIC_SEQ_CST)
    """
    long long kprod_load(long long place) noexcept nogil
    void kprod_store(long long place, long long value) noexcept nogil
    long long kprod_swap(long long place, long long value) noexcept nogil
    void kprod_renew(RecordLock lock) noexcept

cdef double SECOND = 1e9
cdef double LONGEST = 1e6  # seconds
cdef long long NEVER = 0x7FFFFFFFFFFFFFFF
cdef enum:
    NOW = 1
    # Nanoseconds that whoever sends has at least to begin to wait for what it sent.
    LEAST = 500_000
    # By so much the alarm may ring late: twice as much for each time that it was set for nothing.
    LEAST_SLACK = 500_000
    MOST_SLACK = 8_000_000


cdef long long nanoseconds_of(double seconds) noexcept:
    return <long long>(min(max(seconds, 0.0), LONGEST) * SECOND)


@cython.final
@cython.no_gc
cdef class Rest:
    """See the stub."""

    cdef Alarm _alarm
    cdef RecordLock _lock       # taken to set the alarm from elsewhere, or to give it back
    cdef bint _closed
    cdef long long _set_to      # when the alarm rings, as far as is known
    cdef long long _slack
    cdef long long _patience    # of the latest rest
    cdef long long _rung
    cdef long long _due         # when to get up
    cdef long long _at_work     # somebody does the work of the thread
    cdef long long _worked      # somebody did since the thread looked last

    def __cinit__(self):
        self._due = NEVER
        self._slack = LEAST_SLACK
        self._patience = nanoseconds_of(LONGEST)
        self._closed = True
        if kprod_open_alarm(&self._alarm) < 0:
            PyErr_SetFromErrno(OSError)
        self._closed = False

    def __dealloc__(self):
        self._close()

    def rest(self, double patience):
        """Rest until ``ring`` (True), the time set, or ``patience`` without work (False)."""
        cdef bint rung
        if self._closed:
            raise ValueError("the place to rest is closed")
        kprod_store(self._patience, nanoseconds_of(patience))
        with nogil:
            rung = self._sleep()
            kprod_store(self._due, NEVER)
        if rung:
            kprod_store(self._rung, 0)
        return rung

    cdef bint _sleep(self) noexcept nogil:
        cdef long long now, due, until, quiet_since = kprod_nanoseconds()
        while True:
            now = kprod_nanoseconds()
            if kprod_swap(self._worked, 0) or kprod_load(self._at_work):
                quiet_since = now
            due = kprod_load(self._due)
            if due <= now:
                kprod_store(self._slack, LEAST_SLACK)  # somebody has sent, and did not wait
            until = min(due, quiet_since + kprod_load(self._patience))
            if kprod_load(self._rung) or until <= now:
                return kprod_load(self._rung)
            kprod_store(self._set_to, until)
            kprod_set_alarm(&self._alarm, until)
            # Others do it the other way round: first they say what they want, then set the alarm.
            # So it is theirs that holds, or what they want is seen here.
            if not kprod_load(self._rung) and kprod_load(self._due) >= until:
                kprod_await_alarm(&self._alarm)

    def ring(self):
        """End the present rest, or the next one."""
        if not kprod_swap(self._rung, 1):
            self._set(NOW)

    def look_within(self, double seconds):
        """End the present rest, or the next one, in so many seconds or some milliseconds later."""
        cdef long long now = kprod_nanoseconds()
        cdef long long due = now + max(nanoseconds_of(seconds), LEAST)
        cdef long long at, set_to, slack
        if due >= kprod_load(self._due):
            return  # the alarm was set for that
        kprod_store(self._due, due)
        at = min(due, now + kprod_load(self._patience))
        set_to = kprod_load(self._set_to)
        slack = kprod_load(self._slack)
        if not at <= set_to <= at + slack:
            at += slack
            kprod_store(self._slack, min(2 * slack, MOST_SLACK))
            kprod_store(self._set_to, at)
            self._set(at)
            if kprod_load(self._rung):
                self._set(NOW)

    cdef void _set(self, long long at) noexcept:
        # Locked: between the look and the setting our descriptor must not be given back, for its
        # number may by then belong to the alarm of another producer.
        take_lock(&self._lock)
        if not self._closed:
            kprod_set_alarm(&self._alarm, at)
        release_lock(&self._lock)

    def work_begins(self):
        """Somebody looks at everything now, and works: nothing is due until that ends."""
        kprod_store(self._at_work, 1)
        kprod_store(self._due, NEVER)

    def work_ends(self):
        """The work has ended."""
        kprod_store(self._worked, 1)
        kprod_store(self._at_work, 0)

    def close(self):
        """Give back what the system lent. Nobody rests here any more. Idempotent."""
        take_lock(&self._lock)
        self._close()
        release_lock(&self._lock)

    def abandon(self):
        """As ``close``, in a forked child: a thread of the parent may have been at any place."""
        kprod_renew(self._lock)
        self._close()

    cdef void _close(self) noexcept:
        if not self._closed:
            self._closed = True
            kprod_close_alarm(&self._alarm)
