# cython: language_level=3, auto_pickle=False, autotestdict=False
"""A lock for ``with`` statements of Python code that end without memory"""

# Python packs the three arguments of ``__exit__`` of a ``threading.Lock`` into a tuple. Without
# memory for the tuple the block ends with MemoryError, and the lock is held for ever. A compiled
# method needs no tuple. (Cython's own ``with`` makes one beforehand.)

import threading


cdef class Lock:
    cdef object _acquire
    cdef object _release

    def __cinit__(self):
        cdef object lock = threading.Lock()
        self._acquire = lock.acquire
        self._release = lock.release

    def __enter__(self):
        return self._acquire()

    def __exit__(self, kind, error, traceback):
        self._release()

    def acquire(self, timeout=None):
        return self._acquire() if timeout is None else self._acquire(True, timeout)

    def release(self):
        self._release()
