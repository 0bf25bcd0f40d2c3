"""Sockets and files of a broker that a forked child process must close."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol, TypeVar
from weakref import WeakSet


class Closable(Protocol):
    """A socket, a selector or an in-memory file."""

    def close(self) -> object:
        """Close the object. Idempotent.

        Must not take a lock: in a forked child, a lock may be held by a thread that exists only in
        the parent.
        """


_Open = TypeVar("_Open", bound=Closable)
_open: WeakSet[Closable] = WeakSet()


def closed_in_children(opened: _Open) -> _Open:
    """Let forked children close their copy of this object at once; return the object.

    This applies to children that Python forks. Without this call, a child's copy would keep the
    port in use and the directory locked after the broker has stopped.

    Garbage collection in the child could later also close another file that has the same number by
    then. This would happen, for example, in a daemon that has closed all inherited descriptors.
    """
    _open.add(opened)
    return opened


def _close_in_child() -> None:
    for opened in list(_open):
        with suppress(OSError):
            opened.close()


os.register_at_fork(after_in_child=_close_in_child)


class OpenFile:
    """A descriptor that stays open for as long as this object is referenced.

    A segment may be deleted while a response with a slice of the segment waits for a slow client.
    The client can still get the slice, because the descriptor stays open and its number is not
    reused.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        closed_in_children(self)

    def close(self) -> None:
        """Close the descriptor; ``fd`` becomes -1. Idempotent.

        Call this only when nobody uses the descriptor any more.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()
