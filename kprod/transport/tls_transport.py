"""One TLS connection over any transport: handshake by steps, records in, records out."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

from kprod.errors import ConnectionLost
from kprod.transport.base import Transport
from kprod.transport.tls_failure import explained, not_tls

WRITE_BYTES = 256 * 1024
"""Encrypted in one stretch without the interpreter: to take it back may cost milliseconds."""
READ_BYTES = 32 * 1024
_RECORD = 5  # bytes that say what follows


class TlsTransport:
    """A ``Transport`` that speaks TLS over ``inner``. Not thread-safe.

    ``watch`` tells whoever watches ``inner`` what to watch it for. OpenSSL works in memory only
    (``ssl.MemoryBIO``): it never waits, and what it wants to write, of its own accord, too, leaves
    with the next bytes, or as soon as ``inner`` takes any.
    """

    takes_batches = False
    tells_all = False  # OpenSSL has bytes that a later call may let go

    def __init__(
        self,
        inner: Transport,
        name: str,
        engine: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        watch: Callable[[bool], None],
    ) -> None:
        self.inner = inner
        self.name = name
        self._watch = watch
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._engine = engine(self._incoming, self._outgoing)
        self._unsent = memoryview(b"")  # records inner has not taken
        self._owed = 0  # bytes of the caller's within them
        self._first = b""  # of what the peer has sent
        self._ready = False
        self._drained = False  # of what inner had
        self._ended = False  # the peer sends no more
        self._announced = False  # and has said so
        self._broken: Exception | None = None

    def __repr__(self) -> str:
        return f"TlsTransport({self.name})"

    @property
    def engine(self) -> ssl.SSLObject:
        """What was agreed on: ``version()``, ``cipher()``, ``session``, ..."""
        return self._engine

    @property
    def ready(self) -> bool:
        """Whether the handshake is over."""
        return self._ready

    @property
    def has_unsent(self) -> bool:
        """Whether records wait for ``inner``; nobody may have asked us to send."""
        return bool(self._unsent)

    # Connecting ---------------------------------------------------------------------------------

    def advance(self) -> bool:
        """See ``Transport.advance``. Raises TlsAuthenticationError when TLS cannot be agreed on."""
        if self._ready:
            return True
        if not self.inner.advance():
            return False
        try:
            return self._shake()
        except ConnectionLost as lost:
            if self._first:
                raise
            raise ConnectionLost(f"{lost} at the first bytes of TLS: {_EXPECTED}") from lost

    def _shake(self) -> bool:
        while True:
            try:
                self._engine.do_handshake()
                self._ready = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                self._tell_peer()
                raise self._explained(error) from None
            flushed = self._flush()
            if self._ready:
                self._watch(True)  # as a transport that has just connected is watched
                return True
            if not self._fill():
                # Only for what it waits for: a socket that takes bytes is always ready.
                self._watch(not flushed)
                return False

    def _tell_peer(self) -> None:
        """Send the alert, if it goes; that the peer is gone is no news."""
        try:
            self._flush()
        except ConnectionLost:
            self._unsent = memoryview(b"")

    def _explained(self, error: ssl.SSLError) -> Exception:
        if isinstance(error, ssl.SSLEOFError) or self._ended:
            when = "" if self._ready else " during the TLS handshake"
            expected = "" if self._first else f": {_EXPECTED}"
            return ConnectionLost(f"{self.name} ended the connection{when}{expected}")
        return explained(error, self.name, shaking=not self._ready)

    def progress(self) -> str:
        """See ``Transport.progress``."""
        return self.inner.progress() or f"{self.name} has not finished the TLS handshake"

    # Moving bytes -------------------------------------------------------------------------------

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """See ``Transport.send``. Bytes count as taken when the last record of them has left.

        Until then 0 is returned, and the next call has to begin with the same bytes.
        """
        try:
            if not self._owed:
                self._owed = self._encrypt(buffers)
            if not self._flush():
                return 0
        except ssl.SSLError as error:
            raise self._explained(error) from None
        except ConnectionLost:
            self._raise_alert()
            raise
        taken, self._owed = self._owed, 0
        return taken

    def _encrypt(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Make records of the first bytes; of how many."""
        piece = _first_bytes(buffers)
        return self._engine.write(piece) if len(piece) else 0

    def _raise_alert(self) -> None:
        """The peer is gone; if it has said why, raise that."""
        try:
            while self._fill():
                self._engine.read(1)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:
            pass
        except ssl.SSLError as error:
            raise self._explained(error) from None
        except ConnectionLost:
            pass

    def _flush(self) -> bool:
        """Hand records to ``inner``; True when it has taken all there are."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            taken = self.inner.send([self._unsent])
            if not taken:
                return False
            self._unsent = self._unsent[taken:]
        return True

    def receive(self, limit: int) -> bytes | None:
        """See ``Transport.receive``. Less than ``limit`` means that nothing more is at hand.

        An end that the peer has not announced (close_notify, RFC 8446, 6.1) is a ConnectionLost:
        somebody else may have cut the stream.
        """
        if self._broken is not None:
            raise self._broken
        parts: list[bytes] = []
        self._drained = False
        try:
            self._receive(limit, parts)
            self._flush()  # OpenSSL may have answered something itself: a new key, say
        except ssl.SSLError as error:
            self._broken = self._explained(error)
        except ConnectionLost as lost:
            self._broken = lost
        if parts:  # what came in order is received first
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if self._broken is not None:
            raise self._broken
        return b"" if self._announced else None

    def _receive(self, limit: int, parts: list[bytes]) -> None:
        while limit:
            data = self._decrypt(limit)
            if data:
                parts.append(data)
                limit -= len(data)
            elif data is not None:
                self._announced = True
                return
            elif self._drained or not self._fill():
                return

    def _decrypt(self, limit: int) -> bytes | None:
        """What one record holds, at most ``limit``; None for want of bytes, b"" at the end."""
        if not (self._incoming.pending or self._engine.pending() or self._ended):
            return None
        try:
            return self._engine.read(limit)
        except ssl.SSLWantReadError:
            return None

    def _fill(self) -> bool:
        """Take bytes from ``inner``; False when there are none now."""
        if self._ended:
            return False
        chunk = self.inner.receive(READ_BYTES)
        if chunk is None:
            return False
        if not chunk:
            self._ended = True
            self._incoming.write_eof()
            return True
        self._drained = len(chunk) < READ_BYTES  # to ask again would be a system call for nothing
        if len(self._first) < _RECORD:
            self._look_at_first(chunk)
        self._incoming.write(chunk)
        return True

    def _look_at_first(self, chunk: bytes) -> None:
        self._first += chunk[: _RECORD - len(self._first)]
        if (wrong := not_tls(self._first, self.name)) is not None:
            raise wrong

    def close(self) -> None:
        """See ``Transport.close``. Tells the peer that this is the end, if that goes at once."""
        try:
            if self._ready and not self._owed:
                self._engine.unwrap()
        except (ssl.SSLError, ValueError, OSError):
            pass  # it waits for the peer to say so, too; we do not
        try:
            if self._ready:
                self._flush()
        except Exception:
            pass
        self._ready = False
        self.inner.close()


_EXPECTED = "does this port expect TLS? see security_protocol"


def _first_bytes(buffers: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """At most ``WRITE_BYTES`` from the front: a view where one buffer has them, else a copy.

    Small buffers stand between large ones, and every piece given to OpenSSL costs a record.
    """
    if len(buffers) == 1 or (buffers and len(buffers[0]) >= WRITE_BYTES):
        return memoryview(buffers[0])[:WRITE_BYTES]
    pieces: list[bytes | memoryview] = []
    room = WRITE_BYTES
    for buffer in buffers:
        if not room:
            break
        piece = memoryview(buffer)[:room]
        pieces.append(piece)
        room -= len(piece)
    return b"".join(pieces)
