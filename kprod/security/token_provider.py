"""Tokens of the application's own: asked for when the last one has, or may have, expired."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kprod.errors import KprodError, SaslAuthenticationError

log = logging.getLogger(__name__)

AHEAD = 0.8
"""At which part of its lifetime a token is replaced (Kafka: sasl.login.refresh.window.factor)."""


class ProvidedTokens:
    """Asks ``provider``: a callable, or an object with ``token()`` and perhaps ``extensions()``.

    It tells a token, or a token and the time it expires at in seconds since 1970; such a token is
    used for all connections until ``AHEAD`` of its life is over, and until its end while there is
    no other. Any thread.
    """

    def __init__(
        self,
        provider: Any,
        clock: Callable[[], float] = time.time,
        mechanism: str = "OAUTHBEARER",
    ) -> None:
        self._provider = provider
        self._mechanism = mechanism
        self._ask = provider.token if callable(getattr(provider, "token", None)) else provider
        self._clock = clock
        self._lock = threading.Lock()  # held while the provider is asked: once is enough
        self._token = ""
        self._good_until = 0.0
        self._expires = 0.0

    def token(self) -> str:
        """One that has not expired. Raises SaslAuthenticationError when there is none."""
        with self._lock:
            now = self._clock()
            if now >= self._good_until:
                self._renew(now)
            return self._token

    def _renew(self, now: float) -> None:
        try:
            self._token, self._good_until, self._expires = self._fresh(now)
        except KprodError as error:
            if now >= self._expires:
                raise
            left = self._expires - now
            log.warning("the token in use is good for another %.0f s, and then: %s", left, error)

    def _fresh(self, now: float) -> tuple[str, float, float]:
        """A token, when to replace it, and when it expires."""
        try:
            told = self._ask()
        except KprodError:
            raise
        except Exception as error:
            kind = type(error).__qualname__
            raise SaslAuthenticationError(f"{self._mechanism}: no token: {kind}") from None
        if isinstance(told, str):
            return told, 0.0, 0.0
        match told:
            case (str(token), int() | float() as expires):
                if expires <= now:
                    raise SaslAuthenticationError("OAUTHBEARER: the token has expired already")
                return token, now + (expires - now) * AHEAD, expires
        raise SaslAuthenticationError(
            "OAUTHBEARER: the provider returned neither a token nor a token and when it expires"
        )

    def extensions(self) -> Sequence[tuple[str, str]]:
        """Those of the provider, if it has any."""
        ask = getattr(self._provider, "extensions", None)
        return tuple(dict(ask()).items()) if callable(ask) else ()
