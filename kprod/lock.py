"""A lock for ``with`` statements that neither a signal handler nor a lack of memory leaves held.

Python runs signal handlers in the main thread after a call, and there they may raise: Ctrl-C does.
Up to Python 3.13 a ``with`` statement enters without a call that counts. Python 3.14 calls
``__enter__`` like any other method: a handler that raises right after it ends the block before it
has begun, and nothing releases the lock (CPython issue 148874; 3.15 is mended).
"""

from __future__ import annotations

import sys

from kprod_ext import lock

if sys.version_info[:2] == (3, 14):

    class Lock(lock.Lock):
        """Entering a ``with`` statement on it is a single step again.

        A signal handler may run before ``__enter__`` has taken the lock, not after it: neither a
        step of a loop nor returning counts as a call. Leaving is a compiled method.
        """

        __slots__ = ()

        def __enter__(self) -> bool:
            for taken in iter(self.acquire, None):
                return taken
            raise StopIteration  # as a signal handler did while this waited

else:
    Lock = lock.Lock
