"""Transports, which carry bytes to brokers, and backends, which wait for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Transport(Protocol):
    """One non-blocking byte stream to a broker. Used by one thread only.

    It connects in steps (``advance``), and then carries bytes. Every failure is a ConnectionLost
    that names host, port and cause; after one, only ``close`` may be called.

    ``tells_all``: ``send`` reports every byte that may leave, even when it raises. Without this
    guarantee, the broker may have read a request as soon as it was passed to ``send``.
    """

    tells_all: bool = False

    def advance(self) -> bool:
        """Continue connecting; return True once it is connected.

        Call this whenever ``poll`` reports the transport. If the name has several addresses, they
        are tried one after the other; ConnectionLost has the cause for each.
        """
        ...

    def progress(self) -> str:
        """What connecting waits for, and the last failure, as text; "" for neither.

        For the error of a caller that times out.
        """
        return ""

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Send the buffers in order; return the bytes accepted, 0 if none can be now.

        Accepted bytes need not stay in memory. Raises ConnectionLost.
        """
        ...

    def receive(self, limit: int) -> bytes | None:
        """Receive at most ``limit`` bytes; None if there are none now, b"" if the peer has closed.

        Bytes that the peer sent before it closed are received first. Raises ConnectionLost.
        """
        ...

    def close(self) -> None:
        """Release all resources, without waiting for the peer. Idempotent; never raises."""
        ...


class Readiness(NamedTuple):
    """A ready transport. A broken one counts as ready: its next call raises the error."""

    transport: Transport
    readable: bool
    writable: bool


class Backend(Protocol):
    """Makes transports and waits for all of them at once. One per producer.

    Used by one thread at a time, except for ``wake``. ``interruptible``: ``poll`` waits with
    ``kprod_ext.let_signals_in``, so that Ctrl-C can end it even in ``hold_signals``; the next
    ``poll`` then reports what was ready. ``eager`` is set before a ``poll`` of a caller that waits
    for an answer: ``poll`` may spin for some microseconds before it sleeps.
    """

    interruptible: bool = False
    eager: bool = False

    def dial(self, host: str, port: int) -> Transport:
        """Start a connection; it is watched immediately, for reading and writing.

        Does not block, not even to resolve a name. After a failure to connect, even an immediate
        one, ``poll`` reports the transport and ``advance`` raises; only a failure to resolve the
        name may be raised here, as ConnectionLost.
        """
        ...

    def watch(self, transport: Transport, *, write: bool) -> None:
        """Watch for reading, and for writing if ``write``."""
        ...

    def poll(self, timeout: float | None) -> list[Readiness]:
        """Wait until a watched transport is ready; at most ``timeout`` seconds, None for ever.

        Returns early, perhaps without a transport, after ``wake``.
        """
        ...

    def forget(self, transport: Transport) -> None:
        """Stop watching; call it before the transport is closed. Idempotent."""
        ...

    def wake(self) -> None:
        """End the current or the next ``poll``. Any thread, at any time, even after ``close``.

        Several calls between two polls end only one of them.
        """
        ...

    def close(self) -> None:
        """Release all resources and close open transports. Idempotent."""
        ...

    def abandon(self) -> None:
        """In a forked child: close this process's copies of the parent's descriptors.

        Called before the child continues. After a fork that Python does not detect, it is called
        when the child first uses its producer: the numbers may belong to other files by then.
        """
        ...
