# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Objects that have their lock within themselves, not as an object of its own."""

from kprod_ext cimport shared


cdef class Guarded:
    """An object with a lock of its own."""

    cpdef void take_lock(self) noexcept:
        """Wait until no other thread has it."""
        shared.take_lock(&self._own_lock)

    cpdef void release_lock(self) noexcept:
        """Let the next thread have it."""
        shared.release_lock(&self._own_lock)
