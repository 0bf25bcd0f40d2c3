"""What an object holds that has its lock within itself."""

from kprod_ext.shared cimport RecordLock


cdef class Guarded:
    cdef RecordLock _own_lock

    cpdef void take_lock(self) noexcept
    cpdef void release_lock(self) noexcept
