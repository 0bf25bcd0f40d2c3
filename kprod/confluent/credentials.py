"""Credentials that may change while a producer runs: passwords and OAuth tokens."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kprod.clock import wall
from kprod.config.kinds import Extensions, Refused
from kprod.confluent.errors import KafkaError, KafkaException
from kprod.errors import SaslAuthenticationError
from kprod.lock import Lock


class Credentials:
    """User and password, which each login reads. ``repr`` shows neither. Thread-safe."""

    def __init__(self, username: str = "", password: str = "") -> None:
        self._pair = username, password

    def replace(self, username: Any, password: Any) -> None:
        """Replace both from the next login on. Raises TypeError unless both are text."""
        if not isinstance(username, str) or not isinstance(password, str):
            raise TypeError("username and password must be str")
        self._pair = username, password

    def __call__(self) -> tuple[str, str]:
        """User and password, both from the same call of ``replace``."""
        return self._pair


AHEAD = 0.8
"""Fraction of its lifetime after which a token is replaced, as in librdkafka."""
RETRY = 10.0
"""Seconds after a failure until the callback is called again."""

_SHAPE = "oauth_cb must return (token, expiry time[, principal[, extensions]])"


class _Token(NamedTuple):
    """A token. Times are in seconds since 1970."""

    text: str
    extensions: tuple[tuple[str, str], ...]
    renew_at: float
    expires: float


class OAuthTokens:
    """A token provider that calls ``callback(config())``. Thread-safe.

    The callback returns a token, its expiry time in seconds since 1970, and optionally the
    principal's name and a dict of extensions. The constructor makes the first call, and raises
    KafkaException if it gets no token. Later calls are made by the thread of ``keep_fresh`` or by a
    login: after the fraction ``AHEAD`` of a token's lifetime, and ``RETRY`` seconds after a
    failure. The current token is used until it expires.
    """

    def __init__(
        self,
        callback: Callable[[Any], Any],
        config: Callable[[], Any],
        clock: Callable[[], float] = wall,
    ) -> None:
        self._ask: Callable[[], Any] = lambda: callback(config())
        self._clock = clock
        self._asking = Lock()  # held by the thread that calls the callback
        try:
            self._current = self._fetched(clock())
        except Exception as error:
            code = KafkaError.SASL_AUTHENTICATION_FAILED
            raise KafkaException(KafkaError(code, _failure_text(error))) from error
        self._stop = threading.Lock()  # ``close`` releases it, in any thread
        self._stop.acquire()
        self._on_failure: Callable[[KafkaError], object] = lambda error: None
        self.close = weakref.finalize(self, self._stop.release)

    def keep_fresh(self, on_failure: Callable[[KafkaError], object]) -> None:
        """Replace tokens in the background until ``close``. ``on_failure`` gets failures."""
        self._on_failure = on_failure
        watched = weakref.ref(self), self._stop
        threading.Thread(target=_keep_fresh, args=watched, name="kprod-oauth", daemon=True).start()

    def token(self) -> str:
        """The current token. Raises SaslAuthenticationError if it has expired."""
        self.renew()
        if self._clock() >= self._current.expires:
            raise SaslAuthenticationError("OAUTHBEARER: the token of oauth_cb has expired")
        return self._current.text

    def extensions(self) -> Sequence[tuple[str, str]]:
        """The SASL extensions of the token."""
        return self._current.extensions

    @property
    def until_renewal(self) -> float:
        """Seconds until a new token is due."""
        return max(0.0, self._current.renew_at - self._clock())

    def renew(self) -> None:
        """Get a new token if it is due."""
        with self._asking:
            if self.until_renewal:
                return
            try:
                self._current = self._fetched(self._clock())
            except Exception as error:
                self._current = self._current._replace(renew_at=self._clock() + RETRY)
                self._on_failure(KafkaError(KafkaError._AUTHENTICATION, _failure_text(error)))

    def _fetched(self, now: float) -> _Token:
        match self._ask():
            case (str(token), int() | float() as expires, *rest) if len(rest) <= 2:
                if expires <= now:
                    raise _Unusable("the token has expired already")
                extensions = _checked(rest[1]) if len(rest) > 1 else ()
                return _Token(token, extensions, now + (expires - now) * AHEAD, float(expires))
        raise _Unusable(_SHAPE)


class _Unusable(Exception):
    """The result of a token callback is invalid; the text says why, without secrets."""


def _checked(extensions: Any) -> tuple[tuple[str, str], ...]:
    try:
        return Extensions().convert(extensions)
    except Refused as refusal:
        raise _Unusable(str(refusal) or f"extensions: expected {Extensions.expected}") from None


def _failure_text(error: Exception) -> str:
    """The error text. It omits the text of a callback's exception, which may contain a secret."""
    why = str(error) if isinstance(error, _Unusable) else f"oauth_cb raised {type(error).__name__}"
    return f"Failed to acquire SASL OAUTHBEARER token: {why}"


def _keep_fresh(tokens: weakref.ref[OAuthTokens], stop: threading.Lock) -> None:
    """Renew ``tokens`` until it is closed, or no producer refers to it any more."""
    while (kept := tokens()) is not None:
        kept.renew()
        left = kept.until_renewal
        del kept
        if stop.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            return
