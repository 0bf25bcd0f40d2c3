# cython: language_level=3, auto_pickle=False, autotestdict=False
"""What the future of a record in an asyncio loop holds, without the garbage collector's header.

The class is made to be subclassed, as RecordFuture is: one exists per record that a loop sends.
"""

cimport cython


@cython.no_gc           # lets go of its callbacks when they are called
cdef class LoopFuture:
    """The fields of an asyncio future whose outcome is that of ``native``."""
