"""Transports carry bytes to brokers. Backends make transports, and wait for all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol


class Transport(Protocol):
    """One non-blocking byte stream to a broker. Used by one thread at a time.

    It connects in steps (``advance``), and then carries bytes. Every failure is a ConnectionLost
    with the host, the port and the cause. After a failure, only ``close`` may be called.

    ``counts_every_byte`` is true if the return values of ``send`` account for every byte that may
    reach the broker: a call of ``send`` that raises has sent nothing. If it is false, kprod
    assumes that the broker may have read a request as soon as it was passed to ``send``.
    """

    counts_every_byte: bool = False

    def advance(self) -> bool:
        """Continue to connect; return True when the transport is connected.

        kprod calls it whenever ``Backend.poll`` returns this transport. If the host has several
        addresses, they are tried one after the other, and ConnectionLost has the cause for each.
        """
        ...

    def progress(self) -> str:
        """While it connects, return what it waits for and the last failure, or "".

        The text becomes part of the error of a call that times out.
        """
        return ""

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Send the buffers in order; return the number of bytes accepted, 0 if none.

        The caller may reuse the memory of accepted bytes. Raises ConnectionLost.
        """
        ...

    def receive(self, limit: int) -> bytes | None:
        """Return at most ``limit`` bytes, or None if no bytes are available now.

        Less than ``limit`` means that ``Backend.poll`` reports it when more are available. Return
        b"" when the peer has closed the connection; bytes that it sent before are returned first.
        Raises ConnectionLost.
        """
        ...

    def close(self) -> None:
        """Release all resources, without waiting for the peer. Idempotent; never raises."""
        ...


class Readiness(NamedTuple):
    """A transport that is ready. A broken one counts as ready: its next call raises the error."""

    transport: Transport
    readable: bool
    writable: bool


readiness: Callable[[tuple[Transport, bool, bool]], Readiness]
readiness = partial(tuple.__new__, Readiness)
"""Makes a ``Readiness`` of its fields without calling Python code, unlike the class itself."""


class Backend(Protocol):
    """Creates transports, and waits for all of them at once. One per producer.

    One thread at a time uses it; only ``wake`` may be called by any thread. ``interruptible`` means
    that ``poll`` waits with ``kprod_ext.let_signals_in``, so Ctrl-C can end it even inside
    ``hold_signals``. The next ``poll`` then reports what was ready. ``spins`` means that ``poll``
    may spin for some microseconds before it sleeps, while ``eager`` is set. kprod sets ``eager``
    when a caller waits for an answer.
    """

    interruptible: bool = False
    spins: bool = False
    eager: bool = False

    def dial(self, host: str, port: int) -> Transport:
        """Start a connection, and watch it for reading and writing.

        This does not block, not even for DNS. If the connection fails, even at once, ``poll``
        reports the transport and ``advance`` raises the error. Only a DNS failure may be raised
        here, as ConnectionLost.
        """
        ...

    def watch(self, transport: Transport, *, write: bool) -> None:
        """Watch a transport for reading, and for writing if ``write`` is true."""
        ...

    def poll(self, timeout: float | None) -> list[Readiness]:
        """Wait at most ``timeout`` seconds (None: no limit) until a watched transport is ready.

        After ``wake`` it returns early, perhaps with no transport.
        """
        ...

    def forget(self, transport: Transport) -> None:
        """Stop watching a transport. Call it before you close the transport. Idempotent."""
        ...

    def wake(self) -> None:
        """End the current or the next ``poll``. Any thread may call it, even after ``close``.

        Several calls between two polls end only one poll.
        """
        ...

    def close(self) -> None:
        """Release all resources and close open transports. Idempotent."""
        ...

    def abandon(self) -> None:
        """In a forked child: close this process's copies of the parent's descriptors.

        It is called before the child continues. After a fork that Python does not detect, it is
        called when the child first uses its producer. By then the descriptors may belong to other
        files.
        """
        ...
