"""TLS for every connection of another backend, whichever that is."""

from __future__ import annotations

import ssl
from typing import Any

from kprod.transport.base import Backend, Readiness, Transport
from kprod.transport.tls_context import TlsContexts
from kprod.transport.tls_transport import TlsTransport

_MOST_SESSIONS = 1000


class TlsBackend(Backend):
    """Wraps the transports of ``inner``. A broker's certificate has to be for the host dialled.

    Sessions are resumed: a broker that was connected to before is not asked for its certificate
    again while it agrees, unless the files that made the context have changed. Threads as
    ``Backend``.
    """

    def __init__(self, inner: Backend, contexts: TlsContexts) -> None:
        self._inner = inner
        self._contexts = contexts
        self._context: ssl.SSLContext | None = None  # that of ``_sessions``
        self._sessions: dict[tuple[str, int], ssl.SSLSession] = {}
        self._addresses: dict[TlsTransport, tuple[str, int]] = {}
        self._by_inner: dict[Transport, TlsTransport] = {}
        self.interruptible = getattr(inner, "interruptible", False)

    @property
    def eager(self) -> bool:
        """See ``Backend``; it is the inner one that waits."""
        return getattr(self._inner, "eager", False)

    @eager.setter
    def eager(self, wanted: bool) -> None:
        if hasattr(self._inner, "eager"):
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
        except BaseException:
            self._inner.forget(inner)
            inner.close()
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
            Readiness(by_inner.get(inner, inner), readable, writable)
            for inner, readable, writable in self._inner.poll(timeout)
        ]

    def forget(self, transport: Transport) -> None:
        """See ``Backend.forget``."""
        ours = self._ours(transport)
        self._by_inner.pop(ours.inner, None)
        address = self._addresses.pop(ours, None)
        if address is not None:
            self._remember(address, ours)
        self._inner.forget(ours.inner)

    def _remember(self, address: tuple[str, int], transport: TlsTransport) -> None:
        """Keep the session for the next connection: at the end, for tickets come at any time."""
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
        """See ``Backend.abandon``: nothing is said to the peers, which are the parent's."""
        self._inner.abandon()

    @staticmethod
    def _ours(transport: Any) -> TlsTransport:
        if not isinstance(transport, TlsTransport):
            raise TypeError(f"{transport!r} was not made by a TlsBackend")
        return transport


def _server_name(host: str) -> str:
    """The name as certificates have it: without the dot that ends a fully qualified one."""
    return host.rstrip(".").partition("%")[0] or host
