"""A lock for ``with`` statements that no signal handler leaves held.

In the main thread, Python runs signal handlers after calls, and a handler may raise, as for Ctrl-C.
Up to Python 3.13, no handler runs between taking a lock in a ``with`` statement and the block.
Python 3.14 calls ``__enter__`` like any other method. If a handler raises right after that call,
the block is skipped, and nothing releases the lock (CPython issue 148874; fixed in 3.15).
"""

from __future__ import annotations

import sys
import threading

if sys.version_info[:2] == (3, 14):
    from kprod_ext import lock

    class Lock(lock.Lock):
        """A lock that a ``with`` statement takes in a single step, even in Python 3.14.

        A signal handler may run before ``__enter__`` has taken the lock. It cannot run after that,
        because no handler runs at a loop step or a return. ``__exit__`` is a compiled method.
        """

        __slots__ = ()

        def __enter__(self) -> bool:
            for taken in iter(self.acquire, None):
                return taken
            raise StopIteration  # a signal handler raised it during the wait

else:
    Lock = threading.Lock
