"""TLS over the transports of any backend."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kprod.errors import ConnectionLost, KprodError, TlsAuthenticationError
from kprod.transport.base import Backend, Readiness, Transport, readiness
from kprod.transport.tls_context import TlsContexts

_HINTS = {
    9: "check the clocks",
    10: "the broker needs a new one",
    18: "trust it with ssl_cafile, if it is the broker's",
    19: "trust the CA it ends in with ssl_cafile, if that is right",
    20: "name the CA that issued it with ssl_cafile",
    21: "name the CA that issued it with ssl_cafile",
    3: "ssl_crlfile has no list of the CA that issued it",
    62: "is this the right broker, and the name it is known by?",
    64: "is this the right broker, and the address it is known by?",
}
"""Hints by the verification codes of OpenSSL (x509_vfy.h)."""

_OURS = "the broker refused our certificate ({}): check ssl_certfile, and the CAs the broker trusts"
_PROTOCOL = "broker and kprod share no TLS version; kprod supports 1.2 and 1.3"
_REASONS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker asks for a certificate: set ssl_certfile and"
    " ssl_keyfile",
    "TLSV1_ALERT_UNKNOWN_CA": _OURS.format("unknown CA"),
    "SSLV3_ALERT_BAD_CERTIFICATE": _OURS.format("bad certificate"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _OURS.format("expired"),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _OURS.format("revoked"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _OURS.format("unknown"),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _OURS.format("unsupported"),
    "TLSV1_ALERT_DECRYPT_ERROR": _OURS.format("its signature does not fit"),
    "TLSV1_ALERT_ACCESS_DENIED": _OURS.format("access denied"),
    "TLSV1_ALERT_PROTOCOL_VERSION": _PROTOCOL,
    "UNSUPPORTED_PROTOCOL": _PROTOCOL,
    "NO_PROTOCOLS_AVAILABLE": _PROTOCOL,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker found nothing in common: no cipher of ssl_ciphers,"
    " or it asks for a certificate (ssl_certfile, ssl_keyfile)",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the broker asks for stronger ciphers than ssl_ciphers",
    "TLSV1_UNRECOGNIZED_NAME": "the broker knows no host of this name",
    "WRONG_VERSION_NUMBER": "what answered does not speak TLS",
}
"""Explanations by OpenSSL's reason names; ALERT means that the peer has sent it (RFC 8446, 6)."""


def explained(error: ssl.SSLError, name: str, *, shaking: bool) -> KprodError:
    """The error for users.

    If ``shaking``, it occurred in the handshake and concerns authentication. With TLS 1.3 the
    broker may refuse our certificate after our side of the handshake is complete.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = _HINTS.get(error.verify_code, "")
        said = error.verify_message.rstrip(".")
        return TlsAuthenticationError(
            f"the certificate of {name} was refused: {said}" + (hint and f"; {hint}")
        )
    reason = error.reason or ""
    said = _REASONS.get(reason, f"OpenSSL says {reason or error}")
    if shaking or "CERTIFICATE" in reason or reason == "TLSV1_ALERT_UNKNOWN_CA":
        return TlsAuthenticationError(f"no TLS with {name}: {said}")
    return ConnectionLost(f"TLS with {name} broke: {said}")


def not_tls(first: bytes, name: str) -> KprodError | None:
    """The error for another protocol, recognised by its first bytes; None if it may be TLS."""
    if first[0] in b"\x14\x15\x16\x17":
        return None
    server = {b"HTTP": "an HTTP server", b"SSH-": "an SSH server"}.get(first[:4])
    found = f"it is {server}" if server else "what answered does not speak TLS"
    return TlsAuthenticationError(f"no TLS with {name}: {found}; is security_protocol right?")


WRITE_BYTES = 256 * 1024
"""Bytes to encrypt in one step without the GIL. Taking the GIL back may cost milliseconds."""
READ_BYTES = 32 * 1024
_RECORD = 5  # bytes that say what follows


class TlsTransport:
    """A ``Transport`` with TLS over ``inner``. Not thread-safe.

    ``watch`` makes the backend of ``inner`` watch it for writing, or not. OpenSSL works in memory
    only (``ssl.MemoryBIO``), so it never blocks. Its output, including output that it produces by
    itself, is sent with the next bytes, or as soon as ``inner`` accepts any.
    """

    counts_every_byte = False  # OpenSSL buffers bytes that a later call may send

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
        self._unsent = memoryview(b"")  # TLS records that inner has not accepted
        self._owed = 0  # the caller's bytes in them
        self._first = b""  # the first bytes from the peer
        self._ready = False
        self._drained = False  # ``inner`` had no more bytes
        self._ended = False  # the peer sends no more
        self._announced = False  # and has sent close_notify
        self._broken: Exception | None = None

    def __repr__(self) -> str:
        return f"TlsTransport({self.name})"

    @property
    def engine(self) -> ssl.SSLObject:
        """The TLS session: ``version()``, ``cipher()``, ``session``, ..."""
        return self._engine

    @property
    def ready(self) -> bool:
        """Whether the handshake is complete."""
        return self._ready

    @property
    def has_unsent(self) -> bool:
        """Whether TLS records wait for ``inner``, perhaps without a call of ``send``."""
        return bool(self._unsent)

    # Connecting ---------------------------------------------------------------------------------

    def advance(self) -> bool:
        """See ``Transport.advance``. Raises TlsAuthenticationError if the handshake fails."""
        if self._ready:
            return True
        if not self.inner.advance():
            return False
        try:
            return self._shake()
        except ConnectionLost as lost:
            if self._first:
                raise
            raise ConnectionLost(_NO_TLS) from lost

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
                # Only the direction that is needed: a writable socket is always ready.
                self._watch(not flushed)
                return False

    def _tell_peer(self) -> None:
        """Send the alert if possible; ignore that the peer has gone."""
        try:
            self._flush()
        except ConnectionLost:
            self._unsent = memoryview(b"")

    def _explained(self, error: ssl.SSLError) -> Exception:
        if isinstance(error, ssl.SSLEOFError) or self._ended:
            if not self._first:
                return ConnectionLost(_NO_TLS)
            when = "" if self._ready else " during the TLS handshake"
            return ConnectionLost(f"{self.name} ended the connection{when}")
        return explained(error, self.name, shaking=not self._ready)

    def progress(self) -> str:
        """See ``Transport.progress``."""
        return self.inner.progress() or f"{self.name} has not finished the TLS handshake"

    # Moving bytes -------------------------------------------------------------------------------

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """See ``Transport.send``. Bytes count as accepted when their last TLS record is sent.

        Until then it returns 0, and the next call must start with the same bytes.
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
        """Encrypt the first bytes; return how many."""
        piece = _first_bytes(buffers)
        return self._engine.write(piece) if len(piece) else 0

    def _raise_alert(self) -> None:
        """The peer has gone; raise its alert, if it has sent one."""
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
        """Send TLS records to ``inner``; True if it has accepted all."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            taken = self.inner.send([self._unsent])
            if not taken:
                return False
            self._unsent = self._unsent[taken:]
        return True

    def receive(self, limit: int) -> bytes | None:
        """See ``Transport.receive``. Less than ``limit`` means that no more is available.

        An end without close_notify (RFC 8446, 6.1) is a ConnectionLost: an attacker may have
        truncated the stream.
        """
        if self._broken is not None:
            raise self._broken
        parts: list[bytes] = []
        self._drained = False
        try:
            self._receive(limit, parts)
            if self._unsent or self._outgoing.pending:  # OpenSSL's own, as for a key update
                self._flush()
        except ssl.SSLError as error:
            self._broken = self._explained(error)
        except ConnectionLost as lost:
            self._broken = lost
        if parts:  # valid bytes are returned first
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if self._broken is not None:
            raise self._broken
        return b"" if self._announced else None

    def _receive(self, limit: int, parts: list[bytes]) -> None:
        engine, incoming = self._engine, self._incoming
        while limit:
            data = None
            if incoming.pending or engine.pending() or self._ended:
                try:
                    data = engine.read(limit)
                except ssl.SSLWantReadError:
                    data = None  # the rest of a TLS record has not arrived
            if data:
                parts.append(data)
                limit -= len(data)
            elif data is not None:
                self._announced = True
                return
            elif self._drained or not self._fill():
                return

    def _fill(self) -> bool:
        """Read bytes from ``inner``; False if there are none now."""
        if self._ended:
            return False
        chunk = self.inner.receive(READ_BYTES)
        if chunk is None:
            return False
        if not chunk:
            self._ended = True
            self._incoming.write_eof()
            return True
        self._drained = len(chunk) < READ_BYTES  # another read would be a useless system call
        if len(self._first) < _RECORD:
            self._look_at_first(chunk)
        self._incoming.write(chunk)
        return True

    def _look_at_first(self, chunk: bytes) -> None:
        self._first += chunk[: _RECORD - len(self._first)]
        if (wrong := not_tls(self._first, self.name)) is not None:
            raise wrong

    def close(self) -> None:
        """See ``Transport.close``. Sends close_notify if the socket accepts it immediately."""
        try:
            if self._ready and not self._owed:
                self._engine.unwrap()
        except (ssl.SSLError, ValueError, OSError):
            pass  # it would wait for the peer's close_notify; we do not
        try:
            if self._ready:
                self._flush()
        except Exception:
            pass
        self._ready = False
        self.inner.close()


_NO_TLS = (
    "it closed the connection at the start of the TLS handshake; if this port does not use TLS,"
    " change security_protocol"
)
"""Follows the broker's name in an error text."""


def _first_bytes(buffers: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """At most ``WRITE_BYTES`` from the front: a view if one buffer has them, else a copy.

    Small buffers are joined, because OpenSSL makes a TLS record of every piece.
    """
    if len(buffers) > 1 and sum(map(len, buffers)) <= WRITE_BYTES:
        return b"".join(buffers)
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


_MOST_SESSIONS = 1000
_READING_LEAKS = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)
"""Each access to ``ssl.SSLObject.session`` makes a copy and leaks it (CPython gh-116810)."""


class TlsBackend(Backend):
    """Wraps the transports of ``inner``. A broker's certificate must match the dialled host.

    ``resumes``: reconnections resume the TLS session if the broker agrees, unless the context's
    files have changed. The default is False for versions of Python that then leak 7 KB per
    connection (decision 0082). Use it from threads like ``Backend``.
    """

    def __init__(
        self, inner: Backend, contexts: TlsContexts, *, resumes: bool = not _READING_LEAKS
    ) -> None:
        self._inner = inner
        self._contexts = contexts
        self._resumes = resumes
        self._context: ssl.SSLContext | None = None  # the context of ``_sessions``
        self._sessions: dict[tuple[str, int], ssl.SSLSession] = {}
        self._addresses: dict[TlsTransport, tuple[str, int]] = {}
        self._by_inner: dict[Transport, TlsTransport] = {}
        self.interruptible = getattr(inner, "interruptible", False)
        self.spins = getattr(inner, "spins", False)

    @property
    def eager(self) -> bool:
        """See ``Backend``. This is the value of the inner backend, which does the waiting."""
        return self._inner.eager

    @eager.setter
    def eager(self, wanted: bool) -> None:
        self._inner.eager = wanted

    def dial(self, host: str, port: int) -> TlsTransport:
        """See ``Backend.dial``."""
        context = self._contexts.current()
        if context is not self._context:
            self._context = context
            self._sessions.clear()
        session = self._sessions.get((host, port))
        inner = self._inner.dial(host, port)

        def engine(incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
            name = _server_name(host)
            return context.wrap_bio(incoming, outgoing, server_hostname=name, session=session)

        def watch(write: bool) -> None:
            self._inner.watch(inner, write=write)

        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            transport = TlsTransport(inner, name, engine, watch)
        except BaseException as error:
            self._inner.forget(inner)
            inner.close()
            if isinstance(error, UnicodeError):  # an invalid host name such as "a..b"
                raise ConnectionLost(f"cannot resolve {name}: {error}") from error
            raise
        self._by_inner[inner] = transport
        self._addresses[transport] = (host, port)
        return transport

    def watch(self, transport: Transport, *, write: bool) -> None:
        """See ``Backend.watch``."""
        ours = self._ours(transport)
        self._inner.watch(ours.inner, write=write or ours.has_unsent)

    def poll(self, timeout: float | None) -> list[Readiness]:
        """See ``Backend.poll``."""
        by_inner = self._by_inner
        return [
            readiness((by_inner.get(inner, inner), readable, writable))
            for inner, readable, writable in self._inner.poll(timeout)
        ]

    def forget(self, transport: Transport) -> None:
        """See ``Backend.forget``."""
        ours = self._ours(transport)
        self._by_inner.pop(ours.inner, None)
        address = self._addresses.pop(ours, None)
        if address is not None and self._resumes:
            self._remember(address, ours)
        self._inner.forget(ours.inner)

    def _remember(self, address: tuple[str, int], transport: TlsTransport) -> None:
        """Keep the session for the next connection. Called late: tickets may come at any time."""
        if not transport.ready or transport.engine.context is not self._context:
            return
        session = transport.engine.session
        if session is None:
            return
        if len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.clear()
        self._sessions[address] = session

    def wake(self) -> None:
        """See ``Backend.wake``."""
        self._inner.wake()

    def close(self) -> None:
        """See ``Backend.close``."""
        for transport in self._by_inner.values():
            transport.close()
        self._by_inner.clear()
        self._addresses.clear()
        self._inner.close()

    def abandon(self) -> None:
        """See ``Backend.abandon``: sends nothing to the peers, which belong to the parent."""
        self._inner.abandon()

    @staticmethod
    def _ours(transport: Any) -> TlsTransport:
        if not isinstance(transport, TlsTransport):
            raise TypeError(f"{transport!r} was not made by a TlsBackend")
        return transport


def _server_name(host: str) -> str:
    """The name as in certificates: without the final dot of a fully qualified name."""
    return host.rstrip(".").partition("%")[0] or host
