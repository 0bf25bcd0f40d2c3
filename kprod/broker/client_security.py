"""TLS and a login for connections to the nodes of a cluster"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import BrokerError, SaslAuthenticationError, TlsAuthenticationError

if TYPE_CHECKING:
    import ssl

_MOST_ROUNDS: Final = 20


class Conversation(Protocol):
    """One login by one mechanism, the client's side."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """The answer to the broker's message, None once that has ended the login well."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """``context``: TLS, if given. ``mechanism`` and ``begin``: SASL, if given.

    ``begin`` gets the broker's host and begins a login.
    """

    context: ssl.SSLContext | None = None
    mechanism: str | None = None
    begin: Callable[[str], Conversation] | None = None

    def secured(self, plain: socket.socket, host: str) -> socket.socket:
        """The socket to talk over. Raises TlsAuthenticationError; ``plain`` is closed then."""
        if self.context is None:
            return plain
        try:
            return self.context.wrap_socket(plain, server_hostname=host)
        except OSError as error:  # of OpenSSL, among others
            plain.close()
            raise TlsAuthenticationError(f"{host}: the TLS handshake failed: {error}") from error

    def log_in(self, host: str, call: Callable[[ApiKey, Mapping[str, Any]], Any]) -> None:
        """Log in by SASL, if a mechanism is given. Raises SaslAuthenticationError."""
        if self.mechanism is None or self.begin is None:
            return
        offered = call(ApiKey.SASL_HANDSHAKE, {"mechanism": self.mechanism})
        if offered.error_code:
            if not offered.mechanisms:
                raise SaslAuthenticationError(f"{host} takes no logins on this port")
            known = ", ".join(offered.mechanisms)
            raise SaslAuthenticationError(f"{host} takes {known}, not {self.mechanism}")
        conversation = self.begin(host)
        message = conversation.respond(None)
        for _ in range(_MOST_ROUNDS):
            answer = call(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message or b""})
            if answer.error_code:
                why = answer.error_message or BrokerError(answer.error_code)
                refused = f"the broker refused the login by {self.mechanism}"
                raise SaslAuthenticationError(f"{host}: {refused}: {why}")
            message = conversation.respond(bytes(answer.auth_bytes))
            if message is None:
                return
        raise SaslAuthenticationError(f"{host}: the login with {self.mechanism} does not end")


NO_SECURITY: Final = ClientSecurity()
