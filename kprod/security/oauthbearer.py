"""OAUTHBEARER (RFC 7628, KIP-255): tokens from the application, an issuer, or AWS."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from kprod.clock import monotonic, wall
from kprod.config.secret import Secret
from kprod.errors import ConfigError, KprodError, SaslAuthenticationError
from kprod.lock import Lock

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # b64token, RFC 6750, 2.1
_AFTER_ERROR = b"\x01"


class OAuthBearerConversation:
    """Logs in with the result of ``token``, and sends the ``extensions`` with it (KIP-342)."""

    def __init__(
        self,
        token: Callable[[], str],
        extensions: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        self._token = token
        self._extensions = extensions

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``. If a login fails, the broker sends the reason before the error."""
        if challenge is None:
            return self._first()
        return _AFTER_ERROR if challenge else None

    def _first(self) -> bytes:
        token = Secret(self._token())
        if not _TOKEN.fullmatch(token.reveal()):
            raise SaslAuthenticationError("OAUTHBEARER: what the provider returned is not a token")
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions())
        return f"n,,\x01auth=Bearer {token.reveal()}\x01{pairs}\x01".encode()


log = logging.getLogger(__name__)

AHEAD = 0.8
"""A token is replaced after this fraction of its lifetime (sasl.login.refresh.window.factor)."""
PATIENCE = 10.0
"""Seconds until a provider that failed is called again, while the last token is valid."""
_MILLISECONDS = 1e11
"""Larger times are taken for milliseconds: in seconds they would be after the year 5000."""


class ProvidedTokens:
    """Gets tokens from ``provider``, which is a callable or an object with ``token()``.

    The provider returns a token, or a token and its expiry in seconds since 1970. It may also have
    ``extensions()``. A token with an expiry is used for all connections until the fraction
    ``AHEAD`` of its lifetime has passed. If the provider fails then, the token is used until it
    expires. Thread-safe.
    """

    def __init__(
        self,
        provider: Any,
        clock: Callable[[], float] = wall,
        mechanism: str = "OAUTHBEARER",
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self._provider = provider
        self._mechanism = mechanism
        self._ask = provider.token if callable(getattr(provider, "token", None)) else provider
        self._clock = clock
        self._steady = steady
        self._lock = Lock()  # held while the provider is called, by one thread at a time
        self._token = Secret("")
        self._asked_at = (0.0, 0.0)  # for the token, on both clocks
        self._good_for = 0.0  # seconds from then until it is replaced
        self._lifetime = 0.0  # and until it expires
        # Meanwhile, other threads use the token that they have: the provider may take long.
        self._renewing = False

    def token(self) -> str:
        """A valid token. Raises SaslAuthenticationError if there is none."""
        if self._renewing and self._age() < self._lifetime:
            return self._token.reveal()
        with self._lock:
            if self._age() >= self._good_for:
                self._renewing = True
                try:
                    self._renew()
                finally:
                    self._renewing = False
            return self._token.reveal()

    def _age(self) -> float:
        """Seconds since the token was asked for.

        The steady clock does not count the sleep of the machine, and the other may be set back.
        """
        then, steady_then = self._asked_at
        return max(self._clock() - then, self._steady() - steady_then)

    def _renew(self) -> None:
        now = (self._clock(), self._steady())
        try:
            self._token, self._good_for, self._lifetime = self._fresh(now[0])
        except KprodError as error:
            left = self._lifetime - self._age()
            if left <= 0:
                raise
            # Logins wait for each other here: only one of them waits for a provider that hangs.
            self._good_for = min(self._lifetime, self._age() + PATIENCE)
            log.warning("no new token; the current one is valid for %.0f s: %s", left, error)
        else:
            self._asked_at = now

    def _fresh(self, now: float) -> tuple[Secret, float, float]:
        """A token, and the seconds until it is replaced, and until it expires."""
        try:
            found = _fresh(self._ask(), now)
        except KprodError:
            raise
        except Exception as error:
            kind = type(error).__qualname__
            raise SaslAuthenticationError(f"{self._mechanism}: no token: {kind}") from None
        if isinstance(found, str):
            raise SaslAuthenticationError(f"{self._mechanism}: {found}")
        return found

    def __repr__(self) -> str:
        return f"ProvidedTokens({self._mechanism!r})"

    def extensions(self) -> Sequence[tuple[str, str]]:
        """The provider's extensions, if any."""
        ask = getattr(self._provider, "extensions", None)
        return tuple(dict(ask()).items()) if callable(ask) else ()


def _fresh(given: object, now: float) -> tuple[Secret, float, float] | str:
    """A token, and the seconds until it is replaced and until it expires, or an error text.

    The text is returned, because an exception raised here would show the token in a traceback with
    locals.
    """
    match given:
        case str(token):
            return Secret(token), 0.0, 0.0
        case (str(token), int() | float() as expires):
            if not expires > now:  # also true for NaN
                return "the token has already expired"
            if _MILLISECONDS <= expires < math.inf:
                return (
                    "the provider returned the token's expiry in milliseconds; expected seconds"
                    " since 1970: divide it by 1000"
                )
            lifetime = expires - now
            return Secret(token), lifetime * AHEAD, lifetime
    return "the provider returned neither a token nor a token with its expiry"


WIRE_NAME = "OAUTHBEARER"
_NO_CREDENTIALS = (
    "AWS_MSK_IAM: there are no AWS credentials: neither in the environment (AWS_ACCESS_KEY_ID,"
    " AWS_SECRET_ACCESS_KEY), nor in a profile, nor from a role of this machine"
)
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


class MskTokens:
    """A token provider for one broker. Thread-safe."""

    def __init__(self, host: str, region: str | None) -> None:
        self._region = region or _region_of(host)

    def token(self) -> tuple[str, float]:
        """A token and its expiry.

        Raises SaslAuthenticationError if there are no credentials, and boto3's errors if boto3
        cannot get them.
        """
        from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import (
            generate_auth_token_from_credentials_provider,
        )
        from botocore.credentials import CredentialProvider
        from botocore.session import Session

        class Found(CredentialProvider):  # type: ignore[misc]
            def load(self) -> Any:
                return credentials

        credentials = Session().get_credentials()
        if credentials is None:  # the signer would raise AttributeError
            raise SaslAuthenticationError(_NO_CREDENTIALS)
        token, expires_ms = generate_auth_token_from_credentials_provider(self._region, Found())
        return token, expires_ms / 1000


def _region_of(host: str) -> str:
    found = _REGION.search(host.rstrip("."))
    if found is None:
        raise ConfigError(f"the host {host!r} does not name an AWS region; set sasl_msk_region")
    return found[1]
