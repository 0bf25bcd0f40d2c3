"""Detects forks, and closes descriptors in forked children.

A ``fork()`` of the C library is detected, whether Python, uWSGI or other C code calls it. On Linux
4.14 and later, so is the system call ``clone``. ``vfork`` is not detected: its child is about to
execute another program.
"""

from typing import final

def generation() -> int:
    """A number of this process that is greater than those of the processes it was forked from.

    It is constant in a process. Thread-safe.
    """

def sender_begins() -> None:
    """Make forks by C code wait until this thread, a sender thread, sleeps in ``Poller.wait``.

    If the sender thread held the GIL at the fork, the child might wait for the GIL for ever. This
    concerns forks by threads that do not hold the GIL. They wait at most 1 s, and the sender thread
    continues after the fork.
    """

def sender_ends() -> None:
    """Undo ``sender_begins``, in the same thread."""

@final
class Descriptor:
    """A file descriptor of this process, closed at the latest when the object is freed.

    In a forked child, the descriptor is closed before ``fork()`` returns. After the system call
    ``clone`` it stays open. The child's copy of the object closes nothing. Used by one thread at a
    time. Raises MemoryError.
    """

    def __new__(cls, fd: int) -> Descriptor: ...
    @property
    def fd(self) -> int:
        """The descriptor's number, -1 once it is closed."""

    def close(self) -> None:
        """Close the descriptor. Idempotent; does nothing in a forked child."""
