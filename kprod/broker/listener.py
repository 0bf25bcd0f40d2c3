"""One address the broker listens on, and how it speaks there."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kprod.broker.authentication import Authentication
from kprod.broker.stream import PlainStream, Stream
from kprod.broker.tls_stream import TlsStream

_TOLD_PORT: Final = 9092


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener as in Kafka's ``listeners``: a name, an address, a security protocol.

    ``open`` makes a stream of an accepted socket: here is where TLS goes in (``with_tls``). With
    an ``authentication`` a client has to log in before anything but ApiVersions, SaslHandshake and
    SaslAuthenticate is dispatched. ``port`` 0 lets the system choose. ``path`` is that of a Unix
    domain socket, instead of host and port, which clients are told all the same.
    """

    name: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0
    open: Callable[[socket.socket], Stream] = PlainStream
    authentication: Authentication | None = None
    knows_clients: bool = False
    path: str | None = None

    @property
    def authenticates(self) -> bool:
        """Whether clients have to log in by SASL."""
        return self.authentication is not None

    @property
    def is_guarded(self) -> bool:
        """Whether it takes more than to reach it: a login, or a certificate."""
        return self.authenticates or self.knows_clients


def tls_context(
    certfile: str, keyfile: str | None = None, client_cafile: str | None = None
) -> ssl.SSLContext:
    """TLS 1.2 and 1.3 with this certificate; clients need one of ``client_cafile`` if there is any.

    Raises OSError and ssl.SSLError for files that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certfile, keyfile)
    if client_cafile is not None:
        context.load_verify_locations(client_cafile)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_listener(
    name: str,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    authentication: Authentication | None = None,
    path: str | None = None,
) -> Listener:
    """A listener of the protocol that its parts make: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."""

    def encrypted(client: socket.socket) -> Stream:
        return TlsStream(client, tls) if tls is not None else PlainStream(client)

    return Listener(
        name=name,
        host=host,
        port=_TOLD_PORT if path is not None and not port else port,
        open=PlainStream if tls is None else encrypted,
        authentication=authentication,
        knows_clients=tls is not None and tls.verify_mode is ssl.CERT_REQUIRED,
        path=path,
    )
