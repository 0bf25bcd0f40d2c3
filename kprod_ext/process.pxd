"""Detection of forks for compiled code; see the stub of this module.

An object that belongs to one process stores the generation in which it was made, and compares it
with the one at ``generation_mark``, which takes one load. That number is 0 in a forked child until
the child asks for its generation, so it never equals that of an object of the parent.
"""

ctypedef unsigned int Generation

cdef const Generation* generation_mark() noexcept nogil
cdef Generation current_generation() noexcept nogil

# Around a wait without the GIL: see ``sender_begins``.
cdef void thread_sleeps() noexcept nogil
cdef void thread_wakes() noexcept nogil


cdef class Descriptor:
    cdef readonly int fd                # -1: closed
    cdef Generation _generation

    cdef void _close(self) noexcept
