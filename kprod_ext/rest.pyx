# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Where a thread rests while others do its work, and counts time without the interpreter."""

cimport cython
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)

cdef extern from *:
    """
    static int kprod_try_for(PyThread_type_lock lock, long long us) {
        return PyThread_acquire_lock_timed(lock, us, 0) == PY_LOCK_ACQUIRED;
    }
    #define kprod_load(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
    #define kprod_store(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
    #define kprod_swap(place, value) __atomic_exchange_n(&(place), (value), __ATOMIC_SEQ_CST)
    #define KPROD_NEVER 0x7FFFFFFFFFFFFFFFLL
    """
    bint kprod_try_for(PyThread_type_lock lock, long long us) noexcept nogil
    long long kprod_load(long long place) noexcept nogil
    void kprod_store(long long place, long long value) noexcept nogil
    long long kprod_swap(long long place, long long value) noexcept nogil
    long long KPROD_NEVER

cdef double LONGEST = 1e6
cdef enum:
    TICK_US = 1000
    BETWEEN_SEND_AND_WAIT_US = 200  # or less, for whoever waits for what it has sent
    TICKS_PER_SECOND = 1000


cdef long long as_ticks(double seconds) noexcept:
    return <long long>(min(max(seconds, 0.0), LONGEST) * TICKS_PER_SECOND)


@cython.final
@cython.no_gc
cdef class Rest:
    """One thread rests; any thread rings, sets a time to look by, or says that it is at work."""

    cdef PyThread_type_lock _bell   # held; given back once by who rings
    cdef long long _rung
    cdef long long _ticks           # that the thread has rested, in all its life
    cdef long long _due             # the tick to look at
    cdef long long _at_work         # somebody does the work of the thread
    cdef long long _worked          # somebody did since the thread looked last

    def __cinit__(self):
        self._due = KPROD_NEVER
        self._bell = PyThread_allocate_lock()
        if self._bell == NULL:
            raise MemoryError("no lock")
        PyThread_acquire_lock(self._bell, 1)

    def __dealloc__(self):
        if self._bell != NULL:
            if not self._rung:
                PyThread_release_lock(self._bell)
            PyThread_free_lock(self._bell)

    def rest(self, double patience):
        """Rest until ``ring`` (True), the time set, or ``patience`` without work (False)."""
        cdef long long quiet = 0, longest = as_ticks(patience)
        cdef bint rung = False
        with nogil:
            while not rung and quiet < longest:
                rung = kprod_try_for(self._bell, TICK_US)
                if rung:
                    break
                quiet += 1
                kprod_store(self._ticks, self._ticks + 1)
                if kprod_load(self._at_work):
                    quiet = 0
                    continue
                if kprod_swap(self._worked, 0):
                    quiet = 0
                if kprod_load(self._due) <= self._ticks:
                    rung = kprod_try_for(self._bell, BETWEEN_SEND_AND_WAIT_US)
                    # Who had just sent took up the work, then; what is due now was asked for later.
                    if not (kprod_load(self._at_work) or kprod_load(self._worked)):
                        break
            kprod_store(self._due, KPROD_NEVER)
        if rung:
            kprod_store(self._rung, 0)
        return rung

    def ring(self):
        """End the present rest, or the next one."""
        if not kprod_swap(self._rung, 1):
            PyThread_release_lock(self._bell)

    def look_within(self, double seconds):
        """End the present rest, or the next one, in so many seconds, a tick more or less."""
        cdef long long due = kprod_load(self._ticks) + as_ticks(seconds)
        if due < kprod_load(self._due):
            kprod_store(self._due, due)

    def work_begins(self):
        """Somebody looks at everything now, and works: nothing is due until that ends."""
        kprod_store(self._at_work, 1)
        kprod_store(self._due, KPROD_NEVER)

    def work_ends(self):
        """The work has ended."""
        kprod_store(self._worked, 1)
        kprod_store(self._at_work, 0)
