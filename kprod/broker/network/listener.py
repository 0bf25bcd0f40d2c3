"""An address on which the broker listens: its security protocol, and how clients log in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kprod.broker.network.stream import PlainStream, TlsStream
from kprod.clock import wall

SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The SCRAM mechanisms, and the hash of each."""
_USER_AND_TOKEN: Final = 3
_ITERATIONS: Final = 4096
_REFUSED: Final = "Authentication failed: invalid credentials"


class Refused(Exception):
    """Raised when a login fails. The message may be sent to the client."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid token grants. ``principal`` is the user, for example ``User:alice``.

    ``expires`` is when the token expires (Unix time); None if it does not.
    """

    principal: str
    expires: float | None = None


TokenCheck: TypeAlias = Callable[[str], Grant]
"""Validates an OAUTHBEARER token and returns its grant. Raises ``Refused``."""


class Exchange(ABC):
    """The messages of one login. ``principal`` and ``expires`` are valid once ``done`` is true."""

    done = False
    principal = ""
    expires: float | None = None

    @abstractmethod
    def step(self, message: bytes) -> bytes:
        """Return the answer to the client's message. Raises ``Refused``."""


@dataclass(slots=True)
class Authentication:
    """Users with their passwords, the enabled SASL mechanisms, and the lifetime of a session.

    Clients must log in again within ``session_lifetime`` seconds (KIP-368); None means never.
    ``users`` may be changed while the broker runs. ``tokens`` checks OAUTHBEARER tokens. If it is
    None, unsigned tokens are accepted, as Kafka does by default; use that only for tests.
    Thread-safe.
    """

    users: dict[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] = ("PLAIN", *SCRAM)
    session_lifetime: float | None = None
    tokens: TokenCheck | None = None

    def begin(self, mechanism: str) -> Exchange | None:
        """Begin a login by ``mechanism``. Returns None if the mechanism is not enabled."""
        if mechanism not in self.mechanisms:
            return None
        if mechanism == "PLAIN":
            return _Plain(self.users)
        if mechanism in SCRAM:
            return _Scram(mechanism, self.users)
        if mechanism == "OAUTHBEARER":
            return _OAuthBearer(self.tokens or unsigned_token)
        return None

    def __repr__(self) -> str:
        return f"Authentication({len(self.users)} users, {', '.join(self.mechanisms)})"


class _Plain(Exchange):
    """A login by PLAIN (RFC 4616)."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, message: bytes) -> bytes:
        parts = message.split(b"\0")
        if len(parts) != _USER_AND_TOKEN:
            raise Refused("Invalid SASL/PLAIN response: expected 3 tokens")
        claimed, user, password = (part.decode("utf-8", "replace") for part in parts)
        known = self._users.get(user)
        right = known is not None and secrets.compare_digest(known.encode(), password.encode())
        if not right or claimed not in ("", user):
            raise Refused("Authentication failed: Invalid username or password")
        self.done, self.principal = True, f"User:{user}"
        return b""


class _Scram(Exchange):
    """A login by SCRAM (RFC 5802 and 7677), with the package scramp."""

    def __init__(self, mechanism: str, users: Mapping[str, str]) -> None:
        from scramp import ScramMechanism

        self._users = users
        self._hash = SCRAM[mechanism]
        self._server = ScramMechanism(mechanism).make_server(self._known)
        self._first = True

    def _known(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        if user not in self._users:
            raise Refused(_REFUSED)
        self.principal = f"User:{user}"
        return _stored(self._hash, self._users[user].encode())

    def step(self, message: bytes) -> bytes:
        from scramp import ScramException

        try:
            text = message.decode()
            if self._first:
                self._first = False
                self._server.set_client_first(text)
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(text)
        except (ScramException, UnicodeDecodeError):
            raise Refused(_REFUSED) from None
        self.done = True
        return str(self._server.get_server_final()).encode()


def _stored(name: str, password: bytes) -> tuple[bytes, bytes, bytes, int]:
    """Return what a broker stores of a password: salt, stored key, server key, iterations.

    The names are those of RFC 5802, section 3. scramp is not used for this, because it changes the
    password by SASLprep first, which Kafka's brokers do not.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(name, password, salt, _ITERATIONS)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return salt, stored_key, hmac.digest(salted, b"Server Key", name), _ITERATIONS


class _OAuthBearer(Exchange):
    """A login by OAUTHBEARER (RFC 7628). If the token is refused, one more message is exchanged."""

    def __init__(self, check: TokenCheck) -> None:
        self._check = check
        self._refused = False

    def step(self, message: bytes) -> bytes:
        if self._refused:
            raise Refused("Authentication failed: invalid token")
        try:
            grant = self._check(_token(message))
            if grant.expires is not None and grant.expires <= wall():
                raise Refused("the token has expired")
        except Refused as refused:
            self._refused = True
            return json.dumps({"status": "invalid_token", "detail": str(refused)}).encode()
        self.done, self.principal, self.expires = True, grant.principal, grant.expires
        return b""


def _token(message: bytes) -> str:
    parts = message.decode("utf-8", "replace").split("\x01")
    if len(parts) < _USER_AND_TOKEN or parts[-2:] != ["", ""] or not parts[0].startswith("n,"):
        raise Refused("not a message of OAUTHBEARER")
    for part in parts[1:-2]:
        name, _, value = part.partition("=")
        if name == "auth" and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    raise Refused("there is no token")


def unsigned_token(token: str) -> Grant:
    """Accept an unsecured JWS (RFC 7515, A.5), as Kafka does by default. Only for tests."""
    try:
        header, claims = (_json(part) for part in token.split(".")[:2])
        if header.get("alg") != "none":
            raise Refused("only unsecured tokens are read here")
        return Grant(f"User:{claims['sub']}", float(claims["exp"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused("not a token") from None


def _json(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


_TOLD_PORT: Final = 9092


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener as in Kafka's ``listeners``: a name, an address and a security protocol.

    ``open`` makes a stream from an accepted socket, with TLS if the listener uses TLS. With
    ``authentication``, a client must log in before it may send any requests except ApiVersions,
    SaslHandshake and SaslAuthenticate. If ``port`` is 0, the system chooses a port. If ``path`` is
    given, the broker listens on a Unix socket there, and only tells clients the host and port.
    """

    name: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0
    open: Callable[[socket.socket], PlainStream] = PlainStream
    authentication: Authentication | None = None
    knows_clients: bool = False
    path: str | None = None

    @property
    def authenticates(self) -> bool:
        """Whether clients must log in with SASL."""
        return self.authentication is not None

    @property
    def is_guarded(self) -> bool:
        """Whether clients need a login or a certificate."""
        return self.authenticates or self.knows_clients


def tls_context(
    certfile: str, keyfile: str | None = None, client_cafile: str | None = None
) -> ssl.SSLContext:
    """Return a server's SSLContext for TLS 1.2 and 1.3 with this certificate.

    If ``client_cafile`` is given, clients must present a certificate signed by one of its CAs.
    Raises OSError or ssl.SSLError if a file cannot be used.
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
    """Return a listener for ``EmbeddedBroker``.

    Without ``tls`` and ``authentication``, its security protocol is PLAINTEXT. With ``tls`` it is
    SSL, with ``authentication`` SASL_PLAINTEXT, and with both SASL_SSL. If ``port`` is 0, the
    system chooses a port. If ``path`` is given, the broker listens on a Unix socket there.
    """

    def encrypted(client: socket.socket) -> PlainStream:
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


ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True)
class Session:
    """What the broker knows of a connection from one request to the next.

    A connection has at most one request in progress, so handlers change a session without a lock.
    ``authentication`` is a login that has begun and has not ended. After the login, the client may
    send requests until ``expires``, a time of the broker's monotonic clock.
    """

    listener: Listener = field(default_factory=Listener)
    peer: str = ""
    principal: str = ANONYMOUS
    authenticated: bool = True
    authentication: Any = None
    expires: float = float("inf")
