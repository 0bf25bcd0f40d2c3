"""How a wait of the main thread looks for signals: Python runs their handlers in that thread.

A signal that comes just before a system call, or to another thread, does not end the call: so a
long wait is several of at most ROUND, each followed by PyErr_CheckSignals.
"""

cdef enum:
    ROUND = 1000000000      # nanoseconds


cdef bint handles_signals() noexcept
