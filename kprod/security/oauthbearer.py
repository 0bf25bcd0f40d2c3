"""OAUTHBEARER (RFC 7628, KIP-255): a token from the application, an issuer, or AWS."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from kprod.errors import ConfigError, KprodError, SaslAuthenticationError
from kprod.lock import Lock

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


log = logging.getLogger(__name__)

AHEAD = 0.8
"""At which part of its lifetime a token is replaced (Kafka: sasl.login.refresh.window.factor)."""
PATIENCE = 10.0
"""Seconds until a provider that had no token is asked again, while the last one is good."""
_MILLISECONDS = 1e11
"""From here on, up to infinity, a time is in milliseconds: as seconds it is after the year 5000."""


class ProvidedTokens:
    """Asks ``provider``: a callable, or an object with ``token()`` and perhaps ``extensions()``.

    It tells a token, or a token and the time it expires at in seconds since 1970; such a token is
    used for all connections until ``AHEAD`` of its life is over, and until its end while the
    provider has no other. Any thread.
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
        self._lock = Lock()  # held while the provider is asked: once is enough
        self._token = ""
        self._good_until = 0.0
        self._expires = 0.0

    def token(self) -> str:
        """One that has not expired. Raises SaslAuthenticationError without one."""
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
            # Logins wait for each other here: not all of them for a provider that hangs.
            self._good_until = min(self._expires, self._clock() + PATIENCE)
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
                if not expires > now:  # nor if it is NaN
                    raise SaslAuthenticationError(
                        f"{self._mechanism}: the token has expired already"
                    )
                if _MILLISECONDS <= expires < math.inf:
                    raise SaslAuthenticationError(
                        f"{self._mechanism}: the provider told the time at which the token expires"
                        " in milliseconds; seconds since 1970 are expected: divide it by 1000"
                    )
                return token, now + (expires - now) * AHEAD, expires
        raise SaslAuthenticationError(
            f"{self._mechanism}: the provider returned neither a token nor a token and when it"
            " expires"
        )

    def extensions(self) -> Sequence[tuple[str, str]]:
        """Those of the provider, if it has any."""
        ask = getattr(self._provider, "extensions", None)
        return tuple(dict(ask()).items()) if callable(ask) else ()


WIRE_NAME = "OAUTHBEARER"
_NO_CREDENTIALS = (
    "AWS_MSK_IAM: there are no credentials of AWS: neither in the environment (AWS_ACCESS_KEY_ID,"
    " AWS_SECRET_ACCESS_KEY), nor in a profile, nor from a role of this machine"
)
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


class MskTokens:
    """A token provider for one broker. Any thread."""

    def __init__(self, host: str, region: str | None) -> None:
        self._region = region or _region_of(host)

    def token(self) -> tuple[str, float]:
        """A token and when it expires. Raises SaslAuthenticationError without
        credentials; what boto3 raises for credentials it cannot get goes on.
        """
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

        try:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token(self._region)
        except AttributeError:  # the signer takes the None that botocore returns for credentials
            raise SaslAuthenticationError(_NO_CREDENTIALS) from None
        return token, expires_ms / 1000


def _region_of(host: str) -> str:
    found = _REGION.search(host.rstrip("."))
    if found is None:
        raise ConfigError(f"no region of AWS is told by the host {host!r}; set sasl_msk_region")
    return found[1]
