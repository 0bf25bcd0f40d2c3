"""Sockets and files of a broker that a forked child process must close."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol, TypeVar
from weakref import WeakSet


class Closable(Protocol):
    """A socket, a selector, a file in memory."""

    def close(self) -> object:
        """Idempotent, and without a lock: a thread that the child does not have may hold it."""


_Open = TypeVar("_Open", bound=Closable)
_open: WeakSet[Closable] = WeakSet()


def closed_in_children(opened: _Open) -> _Open:
    """Have a child that Python forks close its copy at once.

    With a copy, the port and the lock of the directory stay taken after the broker has stopped. And
    a copy that is freed later closes whatever has its number by then: the file of a daemon, say,
    that has closed all it inherited.
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

    A segment may be deleted while a response that holds a slice of it waits for a slow client;
    its bytes are then still there for that client, and the number of the descriptor is not given
    to another file.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        closed_in_children(self)

    def close(self) -> None:
        """Close it now: nobody uses it any more. ``fd`` is -1 then. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()
