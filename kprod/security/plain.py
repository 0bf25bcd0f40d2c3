"""PLAIN (RFC 4616): user and password as they are, which is why it wants TLS."""

from __future__ import annotations

from collections.abc import Callable

from kprod.errors import SaslAuthenticationError

Login = Callable[[], tuple[str, str]]
"""Tells user and password as they are now."""


class PlainConversation:
    """One message says all."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``."""
        if challenge is not None:
            return None
        user, password = self._login()
        if "\0" in user or "\0" in password:
            raise SaslAuthenticationError("PLAIN: neither user nor password may have a zero in it")
        return f"\0{user}\0{password}".encode()
