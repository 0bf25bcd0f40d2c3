# cython: language_level=3, auto_pickle=False, autotestdict=False
"""A lock for ``with`` that is given back without memory."""

from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
    WAIT_LOCK,
)


cdef inline void _wait_for(PyThread_type_lock lock) noexcept:
    if not PyThread_acquire_lock(lock, NOWAIT_LOCK):
        with nogil:
            PyThread_acquire_lock(lock, WAIT_LOCK)


cdef class Mutex:
    """A lock for ``with`` that is given back without memory."""

    cdef PyThread_type_lock _lock

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock is NULL:
            raise MemoryError("no memory for a lock")

    def __dealloc__(self):
        if self._lock is not NULL:
            PyThread_free_lock(self._lock)

    def acquire(self):
        """Wait until no other thread has it."""
        _wait_for(self._lock)

    def release(self):
        """Let the next thread have it."""
        PyThread_release_lock(self._lock)

    def __enter__(self):
        _wait_for(self._lock)

    def __exit__(self, kind, error, trace):
        PyThread_release_lock(self._lock)
