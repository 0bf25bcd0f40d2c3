"""A lock for ``with`` statements that no exception of a signal handler leaves held.

Python runs signal handlers in the main thread after a call, and there they may raise: Ctrl-C does.
Up to Python 3.13 a ``with`` statement enters without a call that counts. Python 3.14 calls
``__enter__`` like any other method: a handler that raises right after it ends the block before it
has begun, and nothing releases the lock (CPython issue 148874; 3.15 is mended).
"""

from __future__ import annotations

import sys
import threading
from operator import attrgetter

if sys.version_info[:2] == (3, 14):

    class Lock:
        """A ``threading.Lock``, but entering a ``with`` statement on it is a single step again.

        A signal handler may run before ``__enter__`` has taken the lock, not after it: neither a
        step of a loop nor returning counts as a call. Leaving is the lock's own C function.
        """

        __slots__ = ("_lock",)

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> bool:
            for taken in iter(self._lock.__enter__, None):
                return taken
            raise StopIteration  # as a signal handler did while this waited

        __exit__ = property(attrgetter("_lock.__exit__"))

        def acquire(self) -> bool:
            """As that of ``threading.Lock``: for code that runs while signals are held."""
            return self._lock.acquire()

        def release(self) -> None:
            """As that of ``threading.Lock``: for code that runs while signals are held."""
            self._lock.release()

else:
    Lock = threading.Lock
