"""Waiting for file descriptors, and moving bytes through sockets that do not block."""

from collections.abc import Sequence
from typing import Any, final

@final
class Poller:
    """Waits for file descriptors, by poll(2); another thread can end a wait.

    Used by one thread at a time, except for ``wake``. Raises OSError when the system refuses.
    """

    def __init__(self) -> None: ...
    def watch(self, fd: int, data: Any, write: bool, /) -> None:
        """Watch ``fd`` for reading, and for writing if ``write``, from now on; report ``data``."""

    def forget(self, fd: int, /) -> None:
        """Do not watch ``fd`` any more. Idempotent."""

    def watched(self) -> list[Any]:
        """The data of every descriptor that is watched."""

    def wait(self, timeout: float | None, eager: float = 0.0, /) -> list[tuple[Any, bool, bool]]:
        """Wait at most ``timeout`` seconds (None: without limit) for a descriptor or ``wake``.

        Returns (data, readable, writable) of each that is ready; one that is broken is both. Looks
        for up to ``eager`` seconds without sleeping. Signal handlers run, and an exception
        of a handler ends the wait.
        """

    def wake(self) -> None:
        """End the present wait, or the next one. Any thread, any time, also once closed."""

    def close(self) -> None:
        """Give the descriptors back that were made here. Idempotent."""

    def abandon(self) -> None:
        """As ``close``, in a forked child: a thread of the parent may have been at any place."""

def send_buffers(fd: int, buffers: Sequence[bytes | memoryview], /) -> int:
    """Send the buffers in order, at most IOV_MAX of them; how many bytes were taken, maybe 0.

    One system call, which never blocks. Raises OSError, and what a signal handler raises.
    """

def receive(fd: int, limit: int, /) -> bytes | None:
    """At most ``limit`` bytes; None when none have come, b"" when the peer has closed.

    One system call, which never blocks. Raises OSError, and what a signal handler raises.
    """
