"""Waiting for file descriptors, and I/O on non-blocking sockets."""

from collections.abc import Sequence
from typing import Any, final

@final
class Poller:
    """Waits for file descriptors with poll(2); another thread can end a wait.

    Used by one thread at a time, except for ``wake``. Raises OSError if a system call fails. In a
    forked child ``wait`` raises ValueError, and ``wake`` and ``close`` do nothing.
    """

    def __init__(self) -> None: ...
    def watch(self, fd: int, data: Any, write: bool, /) -> None:
        """Watch ``fd`` for reading, and for writing if ``write``, from now on; report ``data``."""

    def forget(self, fd: int, /) -> None:
        """Stop watching ``fd``. Idempotent."""

    def watched(self) -> list[Any]:
        """The data of every descriptor that is watched."""

    def wait(self, timeout: float | None, eager: float = 0.0, /) -> list[tuple[Any, bool, bool]]:
        """Wait at most ``timeout`` seconds (None: no limit) for a descriptor or ``wake``.

        Returns (data, readable, writable) of each ready descriptor; a broken one is both. Spins for
        up to ``eager`` seconds before it sleeps, less often after spins that found nothing. Signal
        handlers run, and an exception of a handler ends the wait.
        """

    def wake(self) -> None:
        """End the current wait, or the next one. Any thread, at any time, even after ``close``."""

    def close(self) -> None:
        """Close the poller's own descriptors. Idempotent."""

def send_buffers(fd: int, buffers: Sequence[bytes | memoryview], /) -> int:
    """Send the buffers in order, at most IOV_MAX of them; return the bytes sent, perhaps 0.

    One system call, which never blocks. Raises OSError, and what a signal handler raises.
    """

def receive(fd: int, limit: int, /) -> bytes | None:
    """Receive at most ``limit`` bytes; None if there are none yet, b"" if the peer has closed.

    One system call, which never blocks. Raises OSError, and what a signal handler raises.
    """
