"""PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677): logins with a user and a password.

PLAIN sends user and password unencrypted, so it needs TLS. SCRAM, with the package scramp, does not
send the password, and the broker has to prove that it also knows the password. Contrary to RFC
5802, SCRAM does not apply SASLprep to names and passwords. Kafka's brokers, its tools and other
clients do not apply it either: they hash the plain UTF-8 (``ScramFormatter.normalize`` in Java,
``rdkafka_sasl_scram.c`` in librdkafka).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kprod.errors import SaslAuthenticationError
from kprod_ext.peer_text import printable

Login = Callable[[], tuple[str, str]]
"""Returns the current user and password."""


class PlainConversation:
    """A login with a single message."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``."""
        if challenge is not None:
            return None
        message = _plain_message(*self._login())
        if message is None:
            raise SaslAuthenticationError("PLAIN: user and password must not contain a NUL")
        return message


def _plain_message(user: str, password: str) -> bytes | None:
    """The message, or None. An exception raised here would show the password in a traceback."""
    if "\0" in user or "\0" in password:
        return None
    return f"\0{user}\0{password}".encode()


LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""With fewer iterations a recorded login would be easy to crack; the maximum takes 0.5 s."""

_ITERATIONS = re.compile(r"(?:^|,)i=([0-9]{1,10})(?:,|$)")


class ScramConversation:
    """The four SCRAM messages: client first, server first, client final, server final."""

    def __init__(self, mechanism: str, login: Login) -> None:
        self._client = _client(mechanism, *login())
        self._next: Callable[[str], bytes | None] = self._answer_first

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``. Raises SaslAuthenticationError for an invalid broker message."""
        from scramp import ScramException

        if challenge is None:
            return str(self._client.get_client_first()).encode()
        reason = ""
        try:
            return self._next(challenge.decode())
        except UnicodeDecodeError:
            reason = "its message is not text"
        except ScramException as error:
            reason = error.message if hasattr(error, "message") else str(error)
        raise SaslAuthenticationError(f"SCRAM: the broker cannot be trusted: {printable(reason)}")

    def _answer_first(self, message: str) -> bytes:
        found = _ITERATIONS.search(message)
        count = int(found[1]) if found is not None else 0
        if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
            raise SaslAuthenticationError(
                f"SCRAM: the broker asks for {count} iterations;"
                f" {LEAST_ITERATIONS} to {MOST_ITERATIONS} are taken"
            )
        self._client.set_server_first(message)
        self._next = self._check_final
        return str(self._client.get_client_final()).encode()

    def _check_final(self, message: str) -> None:
        self._client.set_server_final(message)


def _client(mechanism: str, user: str, password: str) -> Any:
    """scramp's client, without SASLprep."""
    from scramp import ScramClient

    client = ScramClient([mechanism], "replaced", "replaced")
    client.username, client.password = _AsItIs(user), _AsItIs(password)
    return client


class _AsItIs:
    """A name or password without SASLprep. scramp sends ``escape()``, and hashes the bytes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def escape(self) -> str:
        return self._text.replace("=", "=3D").replace(",", "=2C")

    def __bytes__(self) -> bytes:
        return self._text.encode()
