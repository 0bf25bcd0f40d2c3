"""OAUTHBEARER (RFC 7628, KIP-255): a token from somewhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kprod.errors import SaslAuthenticationError

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # b64token, RFC 6750, 2.1
_AFTER_ERROR = b"\x01"


class OAuthBearerConversation:
    """``token`` tells it, for each login; ``extensions`` travel with it (KIP-342)."""

    def __init__(
        self,
        token: Callable[[], str],
        extensions: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        self._token = token
        self._extensions = extensions

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``. The broker tells what is wrong, and then that it was wrong."""
        if challenge is None:
            return self._first()
        return _AFTER_ERROR if challenge else None

    def _first(self) -> bytes:
        token = self._token()
        if not _TOKEN.fullmatch(token):
            raise SaslAuthenticationError("OAUTHBEARER: what the provider returned is not a token")
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions())
        return f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
