# cython: language_level=3, auto_pickle=False, autotestdict=False
"""A ``threading.Lock`` that can be subclassed, for ``kprod.lock`` in Python 3.14.

``__exit__`` is compiled, so that no signal handler runs between its call and the release.
"""

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
