"""Detection of forks, and descriptors that a forked child does not keep.

A ``fork()`` of the C library is detected, no matter if Python, uWSGI or other C code calls it. On
Linux 4.14 and later, so is the system call ``clone``. ``vfork`` is not detected: its child is about
to execute another program.
"""

from typing import final

def generation() -> int:
    """The number of this process, greater than that of each process it was forked from.

    Constant in a process. Thread-safe.
    """

def sender_begins() -> None:
    """This thread is a sender's: a fork by C code waits until it sleeps in ``Poller.wait``.

    Concerns forks by threads that do not hold the GIL. They wait 1 s at most, and the thread goes
    on after the fork. Else the child could wait for ever for a GIL that this thread held.
    """

def sender_ends() -> None:
    """This thread, in which ``sender_begins`` was called, is a sender's no more."""

@final
class Descriptor:
    """A file descriptor of this process, closed at the latest when the object is freed.

    A forked child gets no copy: it is closed before ``fork()`` returns there, or, after the system
    call ``clone``, stays open. The child's copy of the object closes nothing. Used by one thread at
    a time. Raises MemoryError.
    """

    def __new__(cls, fd: int) -> Descriptor: ...
    @property
    def fd(self) -> int:
        """The descriptor's number, -1 once it is closed."""

    def close(self) -> None:
        """Close it. Idempotent; does nothing in a forked child."""
