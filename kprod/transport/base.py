"""Transports, which carry bytes to brokers, and backends, which wait for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Transport(Protocol):
    """One byte stream to a broker that never blocks. Used by one thread only.

    It connects by steps (``advance``) and carries bytes once that is done. Every failure is a
    ConnectionLost naming host, port and cause; after one, only ``close`` makes sense.

    ``tells_all``: what ``send`` has not told as taken has not left and never will, also when it
    raises. Without that promise a request counts as one that the broker may have read as soon as
    it was offered.
    """

    tells_all: bool = False

    def advance(self) -> bool:
        """Go on connecting; True once bytes may flow, False while it takes longer.

        To be called when ``poll`` reports the transport in any way. When the name stands for
        several addresses they are tried one after the other; ConnectionLost tells the cause for
        every one of them.
        """
        ...

    def progress(self) -> str:
        """The state of connecting, in words: the present wait, the last failure; "" for neither.

        For the error of a caller that waits no longer.
        """
        return ""

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Send the buffers in order; how many bytes were taken, 0 when none can be right now.

        Bytes that were taken need not stay in memory. Raises ConnectionLost.
        """
        ...

    def receive(self, limit: int) -> bytes | None:
        """At most ``limit`` bytes; None when there is nothing now, b"" when the peer has closed.

        What the peer sent before it closed is received first. Raises ConnectionLost.
        """
        ...

    def close(self) -> None:
        """Give everything back, without waiting for the peer. Idempotent; raises nothing."""
        ...


class Readiness(NamedTuple):
    """A transport that can go on. A broken one counts as ready: its next call raises the error."""

    transport: Transport
    readable: bool
    writable: bool


class Backend(Protocol):
    """Makes transports and waits for all of them at once. One per producer.

    Used by one thread at a time, except for ``wake``. ``interruptible`` says that ``poll`` waits
    with ``kprod_ext.let_signals_in``, so that Ctrl-C can end it also within ``hold_signals``; what
    was ready is then reported by the next ``poll``. ``eager`` is set before a ``poll`` of a caller
    that waits for an answer: ``poll`` may look for it for some microseconds without sleeping.
    """

    interruptible: bool = False
    eager: bool = False

    def dial(self, host: str, port: int) -> Transport:
        """Start a connection; it is watched at once, for reading and writing.

        Does not block, not even to resolve a name. A failure to connect, even an immediate one, is
        for ``poll`` to report and for ``advance`` to raise; that a name cannot be resolved may also
        be raised at once, as ConnectionLost.
        """
        ...

    def watch(self, transport: Transport, *, write: bool) -> None:
        """Watch for reading, and for writing if ``write``."""
        ...

    def poll(self, timeout: float | None) -> list[Readiness]:
        """Wait until a watched transport can go on; at most ``timeout`` seconds, None for ever.

        Returns early, perhaps with nothing, after ``wake``.
        """
        ...

    def forget(self, transport: Transport) -> None:
        """Stop watching; to be called before the transport is closed. Idempotent."""
        ...

    def wake(self) -> None:
        """End the current or the next ``poll``. Any thread, any time, even after ``close``.

        Several calls between two polls end only one.
        """
        ...

    def close(self) -> None:
        """Give everything back; open transports are closed. Idempotent."""
        ...

    def abandon(self) -> None:
        """In a forked child: drop this process's copies of descriptors that the parent uses."""
        ...
